package session

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// prompt is a shell whose prompt is known.
const prompt = `env "PS1=> " sh`

// Started on a terminal, the agent is in a session. Leaving says how to come
// back, and coming back shows the same.
func TestLabSessionDetach(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	r.shows(p, ">")
	r.line(p, `printf '\033[1;31mred\033[m \033[48;2;10;20;30mtrue\033[m ünïcödé %s\n' "$AGENT_SESSION"`)
	r.shows(p, "ünïcödé agent\n>")
	before := r.coloured(p)
	r.keys(p, "C-]", "d")
	r.shows(p, "detached; the session goes on")
	r.keys(p, "x")
	r.hides(p, "detached")
	r.eventually("the screen differs", func() bool { return r.coloured(p) == before })

	a := r.attach(80, 24, "root", "", "")
	r.shows(a, "ünïcödé agent")
	r.eventually("another terminal shows it differently", func() bool { return r.coloured(a) == before })
	r.line(a, "tty; stty size; exit 9")
	r.shows(a, "[window 0 has ended: exit 9]")
	r.shows(a, "[exit 9]")
	r.shows(p, "[exit 9]")
}

// A killed client ends nothing, on any terminal.
func TestLabSessionClientKilled(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	a := r.attach(80, 24, agentUID, "", "")
	r.shows(a, ">")
	r.line(a, "echo fro''m a")
	r.shows(a, "from a")
	for _, pid := range r.attached() {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	r.shows(a, "[exit 137]")
	first := r.child("__terminal")
	must(t, syscall.Kill(first, syscall.SIGKILL))
	r.eventually("there is no other client", func() bool { c := r.child("__terminal"); return c != 0 && c != first })
	r.line(p, "echo still here")
	r.shows(p, "still here")
	b := r.attach(80, 24, "root", "", "")
	r.shows(b, "still here")
	r.line(b, "exit 0")
	r.shows(p, "[exit 0]")
}

// attached are the clients that attach has started, by their numbers out here.
func (r *rig) attached() (pids []int) {
	r.Helper()
	out, err := exec.Command("pgrep", "-f", "^"+r.binary+" attach").Output()
	if err != nil {
		r.Fatalf("no client: %v", err)
	}
	for _, f := range strings.Fields(string(out)) {
		pid, _ := strconv.Atoi(f)
		ours, err := os.Readlink("/proc/" + f + "/ns/pid")
		theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", r.keeper()))
		if err == nil && err2 == nil && ours == theirs {
			pids = append(pids, pid)
		}
	}
	return pids
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The window has the size of who typed last, and each sees what fits.
func TestLabSessionSizes(t *testing.T) {
	r := newRig(t)
	p := r.start(90, 30, "", prompt)
	r.line(p, "stty size")
	r.shows(p, "30 90")
	r.tmux("resize-window", "-t", name(p), "-x", "70", "-y", "20")
	r.line(p, "clear; stty size")
	r.shows(p, "20 70")

	a := r.attach(40, 10, "root", "", "")
	r.shows(a, "20 70")
	r.line(a, "clear; stty size")
	r.shows(a, "10 40")
	r.shows(p, "10 40") // by the model
	r.line(p, "clear; stty size; echo on the larger one")
	r.shows(p, "20 70")
	r.shows(a, "on the larger one")

	tiny := r.attach(20, 5, "root", "LC_ALL=C", "")
	r.line(tiny, "clear; stty size; echo ü")
	r.shows(tiny, "5 20")
	r.shows(tiny, "ü")
	r.keys(tiny, "C-]", "d")
	r.shows(tiny, "[exit 0]")
}

func TestLabSessionWindows(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	r.shows(p, ">") // before, the terminal would echo the prefix key by itself
	r.line(p, "echo in the first")
	if id := strings.TrimSpace(r.must(agentUID, "new", "second", "--", "env", "PS1=2> ", "sh")); id != "1" {
		t.Errorf("the new window is %q", id)
	}
	r.keys(p, "C-]", "n")
	r.shows(p, "2>")
	r.hides(p, "in the first")
	r.line(p, "id -u; echo win $AGENT_SESSION_WINDOW; echo in the second")
	r.shows(p, "win 1")
	r.shows(p, agentUID)
	r.keys(p, "C-]", "0")
	r.shows(p, "in the first")
	r.keys(p, "C-]", "c")
	r.hides(p, "in the first")
	r.line(p, "echo 'in the' third")
	r.shows(p, "in the third")
	r.keys(p, "C-]", "?")
	r.shows(p, "new window")
	r.keys(p, "q")
	r.shows(p, "in the third")

	var i struct {
		Name    string
		Windows []struct {
			ID      int
			Name    string
			Clients []struct{ PID int }
		}
	}
	if err := json.Unmarshal([]byte(r.must("root", "sessions", "--json")), &i); err != nil {
		t.Fatal(err)
	}
	if i.Name != "agent" || len(i.Windows) != 3 || i.Windows[1].Name != "second" || len(i.Windows[2].Clients) != 1 {
		t.Errorf("sessions: %+v", i)
	}
	if out := r.must("root", "history", "second"); !strings.Contains(out, "in the second") {
		t.Errorf("history: %q", out)
	}
	r.must("root", "kill", "second")
	r.eventually("it is still there", func() bool { return !strings.Contains(r.must("root", "sessions"), "second") })

	// The end of the first window is not that of the session.
	a := r.attach(80, 24, "root", "", "0")
	r.line(a, "exit 3")
	r.shows(a, "[exit 3]")
	r.line(p, "echo goes on; exit 4")
	r.shows(p, "[exit 4]")
}

func TestLabSessionReadOnly(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	a := r.attach(80, 24, "root", "", "-r")
	r.shows(a, ">")
	r.line(a, "echo never; exit 1")
	r.keys(a, "C-]", "c")
	r.line(p, "echo typed in p")
	r.shows(a, "typed in p")
	if s := r.screen(p); strings.Contains(s, "never") || strings.Contains(r.must("root", "sessions"), " 1 ") && strings.Count(r.must("root", "sessions"), "pid") > 2 {
		t.Errorf("a read-only client did something:\n%s", s)
	}
	r.keys(a, "C-]", "d")
	r.shows(a, "[exit 0]")
}

// On a terminal that knows no escape sequences there are none.
func TestLabSessionDumb(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	r.line(p, `printf '\033[31mcoloured\033[m\n'`)
	r.shows(p, "coloured")
	raw := filepath.Join(r.dir, "raw")
	line := strings.Join(r.enter("root", "env", "-i", "TERM=dumb", "PATH=/usr/bin:/bin", r.binary, "attach"), " ")
	a := r.pane(80, 24, "script -qfc "+quote(line)+" "+raw)
	r.shows(a, "coloured")
	r.line(a, `printf '\033[32mgreen\033[m\033]0;title\007\n'`)
	r.shows(a, "green")
	r.keys(a, "C-]", "d")
	r.shows(a, "detached from window 0")
	data, err := os.ReadFile(raw)
	must(t, err)
	if strings.ContainsRune(string(data), '\x1b') {
		t.Errorf("escape sequences: %q", data)
	}
}

// A client that takes nothing holds up nobody, and catches up.
func TestLabSessionSlowReader(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	a := r.attach(80, 24, "root", "", "")
	r.shows(a, ">")
	r.line(a, "echo att''ached")
	r.shows(a, "attached")
	for _, pid := range r.attached() {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	// A client's queue holds a mebibyte.
	r.line(p, "yes 'a line of some length, again and again' | head -c 5000000; clear; echo the end")
	r.hides(p, "a line")
	r.shows(p, "the end")
	for _, pid := range r.attached() {
		must(t, syscall.Kill(pid, syscall.SIGCONT))
	}
	r.hides(a, "a line")
	r.shows(a, "the end")
	r.line(a, "echo again")
	r.shows(p, "again")
}

// Without its server, the agent goes on.
func TestLabSessionServerKilled(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", `sh -c 'trap "echo redrawn; n=1" WINCH; echo ready; while :; do read -r x && echo "got $x"; done'`)
	r.shows(p, "ready")
	a := r.attach(80, 24, "root", "", "")
	r.shows(a, "ready")
	server := r.child("__sessions")
	must(t, syscall.Kill(server, syscall.SIGKILL))
	r.eventually("there is no other server", func() bool { s := r.child("__sessions"); return s != 0 && s != server })
	r.shows(p, "redrawn")
	r.shows(a, "redrawn")
	r.line(a, "one")
	r.shows(p, "got one")
	r.line(p, "two")
	r.shows(a, "got two")
	// That there is no firewall is in the exit code.
	if out, _ := r.in("root", "status", "--json"); !strings.Contains(out, `"restarts": 1`) {
		t.Errorf("status: %s", out)
	}
}

// A container that was paused for longer than a hung server is given has the same
// server afterwards, with all that it remembers; a server that hangs by itself is
// replaced.
func TestLabSessionPaused(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	r.line(p, "echo bef''ore")
	r.shows(p, "before")
	server := r.child("__sessions")
	paused := []int{r.keeper(), server, r.child("__terminal")}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, pid := range paused {
			must(t, syscall.Kill(pid, sig))
		}
		if sig == syscall.SIGSTOP {
			time.Sleep(12 * time.Second)
		}
	}
	for range 3 { // looks of the keeper
		time.Sleep(time.Second)
		r.line(p, "clear; echo aft''er")
		r.shows(p, "after")
	}
	if now := r.child("__sessions"); now != server {
		t.Errorf("the server was replaced: %d, was %d", now, server)
	}
	must(t, syscall.Kill(server, syscall.SIGSTOP))
	r.eventually("the hung server stays", func() bool { s := r.child("__sessions"); return s != 0 && s != server })
	r.line(p, "clear; echo at la''st")
	r.shows(p, "at last")
}

// The agent may use its own session, and nothing of what keeps it; nobody else
// may.
func TestLabSessionPeers(t *testing.T) {
	r := newRig(t)
	p := r.start(100, 30, "", prompt)
	r.line(p, r.binary+" attach")
	r.shows(p, "this is window 0 of the session already")
	r.line(p, "clear; env -u AGENT_SESSION_WINDOW "+r.binary+" attach")
	r.shows(p, "would show itself")
	if out := r.must(agentUID, "sessions"); !strings.Contains(out, "window") && !strings.Contains(out, "pid") {
		t.Errorf("sessions as the agent: %s", out)
	}
	for _, verb := range [][]string{{"sessions"}, {"new", "--", "true"}, {"kill", "0"}, {"history"}} {
		if out, err := r.in("1001", verb...); err == nil || !strings.Contains(out, "only root and the agent's user") {
			t.Errorf("%q as another user: %v: %s", verb, err, out)
		}
	}
	// With the group's right to the socket, but another uid.
	line := r.enter("root", "setpriv", "--reuid=1001", "--regid="+agentUID, "--clear-groups", "--", r.binary, "sessions")
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err == nil {
		t.Errorf("another uid of the agent's group got through: %s", out)
	}
	r.line(p, `clear; for s in $(cd /proc; grep -l __sessions [0-9]*/cmdline | cut -d/ -f1); do kill -9 $s; cat /proc/$s/mem; ls /proc/$s/fd; done 2>&1 | grep -c -i permi`)
	r.eventually("the agent reached the server", func() bool { return strings.HasPrefix(r.screen(p), "3\n") })
	log, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/agent-init/log/audit.jsonl", r.keeper()))
	if err != nil {
		log, err = os.ReadFile(fmt.Sprintf("/proc/%d/root/var/log/agent-init/audit.jsonl", r.keeper()))
	}
	must(t, err)
	if !strings.Contains(string(log), "attached to window 0") {
		t.Errorf("the audit log: %s", log)
	}
}

// A terminal that is lost takes nothing along.
func TestLabSessionTerminalLost(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	r.shows(p, ">")
	r.line(p, "echo bef''ore")
	r.shows(p, "before")
	r.pane(80, 24, "true") // so that the tmux server stays
	r.tmux("kill-session", "-t", name(p))
	r.eventually("the client stays", func() bool { return r.child("__terminal") == 0 })
	a := r.attach(80, 24, "root", "", "")
	r.shows(a, "before")
	r.line(a, "echo after; exit 0")
	r.shows(a, "[exit 0]")
}

// The end of the container reaches who looks, after the agent had its say.
func TestLabSessionStop(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", `sh -c 'trap "echo last words; exit 5" TERM; echo ready; while :; do sleep 0.05; done'`)
	a := r.attach(60, 20, agentUID, "", "")
	r.shows(a, "ready")
	must(t, syscall.Kill(r.keeper(), syscall.SIGTERM))
	r.shows(a, "last words")
	r.shows(a, "[window 0 has ended: exit 5]")
	r.shows(p, "last words")
	r.shows(p, "[exit 5]")
}

// Detached from the start, and recorded.
func TestLabSessionDetachedAndRecorded(t *testing.T) {
	r := newRig(t)
	cast := "/var/log/agent-init/session.cast"
	p := r.pane(80, 24, r.runLine("--session always --record "+cast, prompt)+" </dev/null >/dev/null")
	r.await()
	a := r.attach(77, 20, "root", "AGENT_INIT_PREFIX=ctrl-b", "")
	r.shows(a, ">")
	r.line(a, `echo "recorded ünïcödé"; echo pass""word`)
	r.shows(a, "password")
	r.keys(a, "C-b", "d")
	r.shows(a, "[exit 0]")
	path := fmt.Sprintf("/proc/%d/root%s", r.keeper(), cast)
	r.eventually("it is not in the record", func() bool {
		data, _ := os.ReadFile(path)
		return strings.Contains(string(data), "recorded ünïcödé")
	})
	info, err := os.Stat(path)
	must(t, err)
	if st := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o600 || st.Uid != 0 {
		t.Errorf("the record is %v, uid %d", info.Mode(), st.Uid)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	resized := false
	last := 0.0
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if i == 0 {
			var h struct{ Version, Width, Height int }
			if err := json.Unmarshal([]byte(line), &h); err != nil || h.Version != 2 || h.Width == 0 {
				t.Errorf("header %s: %v", line, err)
			}
			continue
		}
		var e [3]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %d: %s: %v", i, line, err)
		}
		at, ok := e[0].(float64)
		if code := e[1]; !ok || at < last || code != "o" && code != "r" {
			t.Errorf("line %d: %s", i, line)
		}
		last = at
		resized = resized || e[1] == "r" && e[2] == "77x20"
	}
	if !resized {
		t.Errorf("no resize to 77x20 in the record: %s", data)
	}
	r.plays(cast)
	b := r.attach(77, 20, "root", "", "")
	r.line(b, "exit 6")
	r.shows(b, "[exit 6]")
	r.shows(p, "[exit 6]")
}

// exec -t has a terminal that is the agent's.
func TestLabSessionExecTerminal(t *testing.T) {
	r := newRig(t)
	r.start(80, 24, "", prompt)
	line := strings.Join(r.enter("root", "env", "-i", "TERM=xterm", "PATH=/usr/bin:/bin", r.binary, "exec", "-t", "--"), " ")
	a := r.pane(61, 17, line+` sh -c 'stty size; id -u; stat -c %u "$(tty)"; cat; exit 3'`)
	r.shows(a, "17 61\n1000\n1000")
	r.line(a, "echoed")
	r.shows(a, "echoed\nechoed")
	r.tmux("resize-window", "-t", name(a), "-x", "50", "-y", "15")
	r.keys(a, "C-d")
	r.shows(a, "[exit 3]")
	b := r.pane(80, 24, line+` sh -c 'echo ready; exec sleep 1000'`)
	r.shows(b, "ready")
	r.keys(b, "C-c")
	r.shows(b, "[exit 130]")
}
