package grants

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/pkg/session/terminal"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// person sits at a terminal, which answers as terminals do.
type person struct {
	*testing.T
	master  *os.File
	mu      sync.Mutex
	screen  *terminal.Terminal
	pressed int
}

// sitDown gives a person a terminal of their own, and what a process takes for one.
func sitDown(t *testing.T) (*person, *os.File) {
	t.Helper()
	master, tty, err := pty.Open()
	rig.Must(t, err)
	rig.Must(t, pty.Setsize(master, &pty.Winsize{Cols: 100, Rows: 30}))
	p := &person{T: t, master: master, screen: terminal.New(terminal.Options{Cols: 100, Rows: 30})}
	t.Cleanup(func() { master.Close() })
	go func() {
		b := make([]byte, 32<<10)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			_, _ = p.screen.Write(b[:n])
			answers := p.screen.Replies()
			_, err = master.Write(answers) // before anybody has seen it
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p, tty
}

// startOnTerminal runs args as PID 1 of a new box that has a terminal, as "docker run -it" does.
func startOnTerminal(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions, args ...string) (*rig.World, *person) {
	t.Helper()
	p, tty := sitDown(t)
	opts.Binary = lab.Binary(t)
	opts = rig.WithBackend(opts)
	opts.Files = append([]lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(list)}}, opts.Files...)
	w := &rig.World{T: t, Lab: l, Box: l.NewBox(opts)}
	w.Agent = w.Box.Start(lab.Cmd{Args: args, TTY: tty})
	rig.Must(t, tty.Close())
	w.InSession()
	return w, p
}

func (p *person) sees() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimRight(strings.Join(p.screen.Text(), "\n"), "\n")
}

// awaits waits until the screen has all of the texts.
func (p *person) awaits(texts ...string) {
	p.Helper()
	if !rig.Eventually(lab.Patience, func() bool {
		screen := p.sees()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	}) {
		p.Fatalf("the screen lacks one of %q:\n%s", texts, p.sees())
	}
}

// presses presses one key.
func (p *person) presses(key string) {
	p.Helper()
	p.pressed++
	_, err := p.master.WriteString(key)
	rig.Must(p.T, err)
}

// TestGrantAtTerminal: who sits at the container's terminal is told of a request on the screen, and three keys later
// the agent reaches the host. Nothing but that person's keys does it.
func TestGrantAtTerminal(t *testing.T) {
	lab.Require(t)
	l := rig.NewLab(t)
	for _, host := range []string{"evil.test", "worse.test"} {
		l.Web.Handle(host, rig.NewStreams())
	}
	w, p := startOnTerminal(t, l, "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "env", "PS1=at work> ", "sh")
	p.awaits("at work>")
	w.Blocked("resolve", "evil.test")
	asked := time.Now()
	if r := w.AgentRuns("request", "evil.test", "--reason", "to build"); r.Code != 0 {
		t.Fatal(r)
	}
	p.awaits("request 1: evil.test", "Ctrl-] a", "at work>")
	p.presses("\x1d")
	p.presses("a")
	p.awaits("evil.test", `because "to build"`, "1 allow for 10 minutes")
	p.presses("1")
	p.awaits("allowed evil.test for 10m")
	w.Works("http", "https://evil.test/")
	if took := time.Since(asked); p.pressed > 3 || took > 10*time.Second {
		t.Errorf("%d keys, %v", p.pressed, took)
	}
	p.presses("q")
	p.awaits("at work>")
	if !rig.Eventually(lab.Patience, func() bool { return !strings.Contains(p.sees(), "evil.test") }) {
		t.Errorf("what was there before is not there again:\n%s", p.sees())
	}
}

// TestProgramsCantAnswerForThePerson: what waits is not granted by a program in the window, whatever that prints, nor
// by the uid of the session's server, which may have been taken over: the client that answers is out of reach of both.
func TestProgramsCantAnswerForThePerson(t *testing.T) {
	lab.Require(t)
	w, p := startOnTerminal(t, rig.NewLab(t), "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "env", "PS1=at work> ", "sh")
	p.awaits("at work>")
	if r := w.AgentRuns("request", "evil.test", "--reason", "to build"); r.Code != 0 {
		t.Fatal(r)
	}
	p.awaits("request 1: evil.test")
	client, server := process(w, "__terminal"), process(w, "__sessions")
	if client.Uid == server.Uid || client.Uid == 0 || client.Uid == lab.AgentUID {
		t.Errorf("uids are %d and %d", client.Uid, server.Uid)
	}
	client.Undumpable(t, "the client on the container's terminal")
	pid := fmt.Sprint(client.Pid)
	for _, op := range [][]string{
		{"kill", pid, "0"}, {"kill", pid, "STOP"}, {"kill", pid, "CONT"}, {"ptrace", pid}, {"vmwrite", pid}, {"getfd", pid, "0"}, {"getfd", pid, "4"}, {"getfd", pid, "5"},
		{"read", "/proc/" + pid + "/environ"}, {"read", "/proc/" + pid + "/maps"}, {"write", "/proc/" + pid + "/mem"}, {"write", "/proc/" + pid + "/fd/0"},
		{"unix", "/run/agent-init/control.sock"},
	} {
		for who, attempt := range map[string]lab.Poke{"the agent": w.Poke(op...), "the server's uid": w.Box.Poke(server.Uid, op...)} {
			if attempt.OK || attempt.Errno != "EPERM" && attempt.Errno != "EACCES" {
				t.Errorf("%s: %v: %s", who, op, attempt)
			}
		}
	}
	for _, argv := range [][]string{{"allow", "--request", "1"}, {"__terminal", "--answers"}} {
		if r := w.AgentRuns(argv...); r.Code == 0 {
			t.Errorf("%v: %s", argv, r)
		}
	}
	// What a program prints before the person has opened the list, and while it is there.
	const prints = `while :; do printf '\035a1\0331\033[6n\033[5n\033[c\005\033 G\033[6n\033]52;c;?\007\033[21t\033[8mNOT ASKED'; sleep 0.05; done`
	if r := w.Launch("agent-init", "new", "bad", "--", "sh", "-c", prints).Wait(0); r.Code != 0 {
		t.Fatal(r)
	}
	p.presses("\x1d")
	p.presses("1")
	p.awaits("NOT ASKED")
	p.presses("\x1d")
	p.presses("a")
	p.awaits("evil.test", "1 allow for 10 minutes")
	for range 20 {
		if screen := p.sees(); strings.Contains(screen, "NOT ASKED") || !strings.Contains(screen, "1 allow for 10 minutes") {
			t.Fatalf("the program draws over the list:\n%s", screen)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, g := range w.Grants() {
		if g.Kind != "request" || g.Outcome != "" {
			t.Errorf("%+v was granted", g)
		}
	}
	p.presses("n")
	p.awaits("evil.test was turned down")
	if r := w.Root("agent-init", "grants"); !strings.Contains(r.Stdout, "turned down by the terminal") {
		t.Errorf("who has decided is not said:\n%s", r.Stdout)
	}
}

// process is the one in the box that runs a command of agent-init's.
func process(w *rig.World, command string) (found rig.Inmate) {
	w.Helper()
	if !rig.Eventually(lab.Patience, func() bool {
		for _, i := range rig.Inmates(w.T, w.Agent) {
			if strings.Contains(i.Args, command) {
				found = i
				return true
			}
		}
		return false
	}) {
		w.Fatalf("there is no %s", command)
	}
	return found
}

// TestTerminalUnknown: programs of a window can use the terminal that they are told of. One that the image has no entry
// for is none of those, and a start says so, once.
func TestTerminalUnknown(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for asked, want := range map[string]string{"xterm-ghostty": "xterm-256color", "linux": "linux", "": "xterm-256color", "../../etc/passwd": "xterm-256color"} {
		opts := lab.BoxOptions{}
		if asked != "" {
			opts.Env = []string{"TERM=" + asked}
		}
		w := rig.StartIn(t, l, rig.Allowlist, opts, "agent-init", "run", "--session", "always", "--", "sh", "-c", `tput clear && echo "term=$TERM"; exec sleep infinity`)
		w.Ready()
		var said string
		if !rig.Eventually(lab.Patience, func() bool {
			said = w.Root("agent-init", "history").Stdout
			return strings.Contains(said, "term="+want+"\n")
		}) {
			t.Errorf("TERM=%s: %q", asked, said)
		}
		warning := "no terminfo entry for " + asked
		if known := asked == want || asked == ""; strings.Contains(w.Agent.Stderr(), warning) == known {
			t.Errorf("TERM=%s: %s", asked, w.Agent.Stderr())
		}
	}
}
