package attack

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
	must(t, err)
	must(t, pty.Setsize(master, &pty.Winsize{Cols: 100, Rows: 30}))
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
func startOnTerminal(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions, args ...string) (*world, *person) {
	t.Helper()
	p, tty := sitDown(t)
	opts.Binary = lab.Binary(t)
	opts = withBackend(opts)
	opts.Files = append([]lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(list)}}, opts.Files...)
	w := &world{T: t, lab: l, box: l.NewBox(opts)}
	w.agent = w.box.Start(lab.Cmd{Args: args, TTY: tty})
	must(t, tty.Close())
	w.inSession()
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
	if !eventually(lab.Patience, func() bool {
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
	must(p.T, err)
}

// TestGrantAtTerminal: who sits at the container's terminal is told of a request on the screen, and three keys later
// the agent reaches the host. Nothing but that person's keys does it.
func TestGrantAtTerminal(t *testing.T) {
	lab.Require(t)
	l := newLab(t)
	for _, host := range []string{"evil.test", "worse.test"} {
		l.Web.Handle(host, newStreams())
	}
	w, p := startOnTerminal(t, l, "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "env", "PS1=at work> ", "sh")
	p.awaits("at work>")
	w.blocked("resolve", "evil.test")
	asked := time.Now()
	if r := w.agentRuns("request", "evil.test", "--reason", "to build"); r.Code != 0 {
		t.Fatal(r)
	}
	p.awaits("request 1: evil.test", "Ctrl-] a", "at work>")
	p.presses("\x1d")
	p.presses("a")
	p.awaits("evil.test", `because "to build"`, "1 allow for 10 minutes")
	p.presses("1")
	p.awaits("allowed evil.test for 10m")
	w.works("http", "https://evil.test/")
	if took := time.Since(asked); p.pressed > 3 || took > 10*time.Second {
		t.Errorf("%d keys, %v", p.pressed, took)
	}
	p.presses("q")
	p.awaits("at work>")
	if !eventually(lab.Patience, func() bool { return !strings.Contains(p.sees(), "evil.test") }) {
		t.Errorf("what was there before is not there again:\n%s", p.sees())
	}
}

// TestProgramsCantAnswerForThePerson: what waits is not granted by a program in the window, whatever that prints, nor
// by the uid of the session's server, which may have been taken over: the client that answers is out of reach of both.
func TestProgramsCantAnswerForThePerson(t *testing.T) {
	lab.Require(t)
	w, p := startOnTerminal(t, newLab(t), "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "env", "PS1=at work> ", "sh")
	p.awaits("at work>")
	if r := w.agentRuns("request", "evil.test", "--reason", "to build"); r.Code != 0 {
		t.Fatal(r)
	}
	p.awaits("request 1: evil.test")
	client, server := w.process("__terminal"), w.process("__sessions")
	if client.uid == server.uid || client.uid == 0 || client.uid == lab.AgentUID {
		t.Errorf("uids are %d and %d", client.uid, server.uid)
	}
	client.undumpable(t, "the client on the container's terminal")
	pid := fmt.Sprint(client.pid)
	for _, op := range [][]string{
		{"kill", pid, "0"}, {"kill", pid, "STOP"}, {"kill", pid, "CONT"}, {"ptrace", pid}, {"vmwrite", pid}, {"getfd", pid, "0"}, {"getfd", pid, "4"}, {"getfd", pid, "5"},
		{"read", "/proc/" + pid + "/environ"}, {"read", "/proc/" + pid + "/maps"}, {"write", "/proc/" + pid + "/mem"}, {"write", "/proc/" + pid + "/fd/0"},
		{"unix", "/run/agent-init/control.sock"},
	} {
		for who, attempt := range map[string]lab.Poke{"the agent": w.poke(op...), "the server's uid": w.box.Poke(server.uid, op...)} {
			if attempt.OK || attempt.Errno != "EPERM" && attempt.Errno != "EACCES" {
				t.Errorf("%s: %v: %s", who, op, attempt)
			}
		}
	}
	for _, argv := range [][]string{{"allow", "--request", "1"}, {"__terminal", "--answers"}} {
		if r := w.agentRuns(argv...); r.Code == 0 {
			t.Errorf("%v: %s", argv, r)
		}
	}
	// What a program prints before the person has opened the list, and while it is there.
	const prints = `while :; do printf '\035a1\0331\033[6n\033[5n\033[c\005\033 G\033[6n\033]52;c;?\007\033[21t\033[8mNOT ASKED'; sleep 0.05; done`
	if r := w.launch("agent-init", "new", "bad", "--", "sh", "-c", prints).Wait(0); r.Code != 0 {
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
	for _, g := range w.grants() {
		if g.Kind != "request" || g.Outcome != "" {
			t.Errorf("%+v was granted", g)
		}
	}
	p.presses("n")
	p.awaits("evil.test was turned down")
	if r := w.root("agent-init", "grants"); !strings.Contains(r.Stdout, "turned down by the terminal") {
		t.Errorf("who has decided is not said:\n%s", r.Stdout)
	}
}

// process is the one in the box that runs a command of agent-init's.
func (w *world) process(command string) (found inmate) {
	w.Helper()
	if !eventually(lab.Patience, func() bool {
		for _, i := range inmates(w.T, w.agent) {
			if strings.Contains(i.args, command) {
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
		w := startIn(t, l, allowlist, opts, "agent-init", "run", "--session", "always", "--", "sh", "-c", `tput clear && echo "term=$TERM"; exec sleep infinity`)
		w.ready()
		var said string
		if !eventually(lab.Patience, func() bool {
			said = w.root("agent-init", "history").Stdout
			return strings.Contains(said, "term="+want+"\n")
		}) {
			t.Errorf("TERM=%s: %q", asked, said)
		}
		warning := "no terminfo entry for " + asked
		if known := asked == want || asked == ""; strings.Contains(w.agent.Stderr(), warning) == known {
			t.Errorf("TERM=%s: %s", asked, w.agent.Stderr())
		}
	}
}
