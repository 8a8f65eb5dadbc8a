package container

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// testSupervision looks at agent-init as the init of a confined container, started in each way that
// people start one: PID 1, or below the engine's own init.
func testSupervision(t *testing.T, e *engine, _ *internet) {
	for _, init := range []struct {
		name    string
		options []string
	}{{"pid1", nil}, {"below-init", []string{"--init"}}} {
		t.Run(init.name, func(t *testing.T) {
			start := func(name string, more ...string) []string {
				return args([]string{"run", "--name", name}, privileges(), init.options, more)
			}
			t.Run("stdio", func(t *testing.T) { testStdio(t, e, start) })
			t.Run("terminal", func(t *testing.T) { testTerminal(t, e, start) })
			t.Run("stop", func(t *testing.T) { testStop(t, e, start) })
			t.Run("kill", func(t *testing.T) { testKill(t, e, start) })
		})
	}
}

// startArgs puts a "docker run" together, from a name and what follows the options of every test.
type startArgs func(name string, more ...string) []string

// testStdio checks standard input and output with neither -t nor -i, and with -i.
func testStdio(t *testing.T, e *engine, start startArgs) {
	r := e.docker(start(e.name(t), e.base, "sh", "-c", `test ! -t 0 && ! read -r _ && echo out >/dev/stdout && echo err >&2; exit 42`)...)
	if r.code != 42 || r.stdout != "out\n" || !strings.Contains(r.stderr, "err\n") {
		t.Errorf("neither -t nor -i: exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<14)
	cmd := exec.Command("docker", start(e.name(t), "-i", e.base, "cat")...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil || !bytes.Equal(out, data) {
		t.Errorf("-i: %v, and %d bytes came back of %d", err, len(out), len(data))
	}
	// Without -i nobody ever types anything.
	r = e.docker(start(e.name(t), "-t", e.base, "sh", "-c", `test -t 0 && test -t 1 && echo terminal >"$(tty)" && exit 43`)...)
	if r.code != 43 || !strings.Contains(r.stdout, "terminal\r\n") {
		t.Errorf("-t: exit %d, %q", r.code, r.stdout+r.stderr)
	}
}

// testTerminal types at the client of "docker run -it".
func testTerminal(t *testing.T, e *engine, start startArgs) {
	t.Run("ctrl-c", func(t *testing.T) {
		c := e.terminal(t, start(e.name(t), "-it", e.base, "sh", "-c", `echo ready; exec sleep 1000`))
		c.wait("ready")
		c.typed("\x03")
		c.wantExit(130)
	})
	t.Run("ctrl-c-caught", func(t *testing.T) {
		c := e.terminal(t, start(e.name(t), "-it", e.base, "bash", "-c", `n=0; trap 'n=$((n + 1))' INT
			stty -echo; echo ready; read -r line; read -r line; echo "got $line, $n"; exit 9`))
		c.wait("ready")
		c.typed("\x03")
		c.typed("one\ntwo\n")
		c.wait("got two, 1")
		c.wantExit(9)
	})
	t.Run("ctrl-z", func(t *testing.T) { // nobody but agent-init can resume cat
		c := e.terminal(t, start(e.name(t), "-it", e.base, "sh", "-c", `stty -echo; echo ready; exec cat`))
		c.wait("ready")
		c.typed("\x1a")
		c.typed("after the suspension\n")
		c.wait("after the suspension")
		c.typed("\x04")
		c.wantExit(0)
	})
	// It stops its process group, as Claude Code does on ^Z, and does nothing until somebody has resumed it.
	const suspendsItself = `trap back=1 CONT; stty raw -echo; printf ready; head -c 1 >/dev/null; stty sane -echo
		kill -TSTP 0; until [ "$back" ]; do read -rt 0.1 none; done; echo resumed; read -r line; echo "heard $line"; exit 9`
	suspended := func(t *testing.T, c *client) {
		c.wait("ready")
		c.typed("\x1a")
		c.wait("resumed")
		c.typed("one\n")
		c.wait("heard one")
		c.wantExit(9)
	}
	for _, session := range []string{"auto", "never"} {
		t.Run("suspends-itself-"+session, func(t *testing.T) {
			suspended(t, e.terminal(t, start(e.name(t), "-it", "-e", "AGENT_INIT_SESSION="+session, e.base, "bash", "-c", suspendsItself)))
		})
	}
	t.Run("suspends-itself-exec", func(t *testing.T) {
		name := e.name(t)
		e.must(t, start(name, "-d", e.base, "sh", "-c", "echo ready; exec sleep 1000000")...)
		e.logged(t, name, "ready")
		exec := []string{"exec", "-it", name, "/usr/local/bin/agent-init", "exec"}
		suspended(t, e.terminal(t, args(exec, []string{"--", "bash", "-c", suspendsItself})))
		suspended(t, e.terminal(t, args(exec, []string{"-T", "--", "bash", "-c", suspendsItself})))
		suspended(t, e.terminal(t, []string{"exec", "-it", name, "sh", "-c", `cd /; /usr/local/bin/agent-init exec -- bash -c "$0"; exit $?`, suspendsItself}))
	})
	t.Run("job-control", func(t *testing.T) {
		c := e.terminal(t, start(e.name(t), "-it", "-e", "PS1=prompt:", "-e", "TERM=dumb", e.base, "bash", "--norc", "--noprofile", "--noediting", "-i"))
		c.typed("stty -echo; echo begin $((1+1))\n")
		c.wait("begin 2")
		c.wait("prompt:")
		c.typed("sh -c 'echo the job runs; while :; do read -r x; echo heard $x; done'\n")
		c.wait("the job runs") // what is typed is not echoed
		c.typed("\x1a")
		c.wait("Stopped")
		c.wait("prompt:")
		c.typed("fg\n")
		c.typed("again\n")
		c.wait("heard again")
		c.typed("\x03")
		c.wait("prompt:") // an interrupt takes what was typed ahead with it
		c.typed("echo code $?\n")
		c.wait("code 130")
		c.typed("exit 11\n")
		c.wantExit(11)
	})
	t.Run("resize", func(t *testing.T) {
		c := e.terminal(t, start(e.name(t), "-it", e.base, "bash", "-c", `trap 'echo "size $(stty size)"' WINCH; trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done`))
		c.wait("ready")
		if err := pty.Setsize(c.master, &pty.Winsize{Rows: 20, Cols: 45}); err != nil {
			t.Fatal(err)
		}
		// Docker's client listens for a change a moment after it has told the first size. Of one between, nobody tells it.
		c.waitWith("size 20 45", func() { _ = c.cmd.Process.Signal(syscall.SIGWINCH) })
		c.typed("\x03")
		c.wantExit(9)
	})
}

// testStop checks what an agent gets when its container is to end.
func testStop(t *testing.T, e *engine, start startArgs) {
	exitCode := func(name string) string { return e.must(t, "inspect", "--format", "{{.State.ExitCode}}", name) }
	t.Run("polite", func(t *testing.T) {
		name := e.name(t)
		e.must(t, start(name, "-d", e.base, "sh", "-c", `trap 'sleep 0.3; echo goodbye; exit 5' TERM; echo ready; while :; do sleep 0.05; done`)...)
		e.logged(t, name, "ready")
		e.must(t, "stop", name)
		if code, logs := exitCode(name), e.must(t, "logs", name); code != "5" || !strings.Contains(logs, "goodbye") {
			t.Errorf("exit %s, %q", code, logs)
		}
	})
	t.Run("stubborn", func(t *testing.T) {
		name := e.name(t)
		e.must(t, start(name, "-d", "-e", "AGENT_INIT_GRACE=1s", e.base, "sh", "-c",
			`trap '' TERM; setsid sh -c 'trap "" TERM; while :; do sleep 1; done' & echo ready; while :; do sleep 1; done`)...)
		e.logged(t, name, "ready")
		// The engine itself would wait for much longer.
		r := e.docker("stop", "-t", "110", name)
		if code := exitCode(name); r.code != 0 || code != "137" || r.took > 100*time.Second {
			t.Errorf("docker stop: exit %d in %v; the container: exit %s", r.code, r.took, code)
		}
		t.Logf("stopped after %v", r.took)
	})
	t.Run("suspended", func(t *testing.T) {
		name := e.name(t)
		e.must(t, start(name, "-d", e.base, "sh", "-c", `trap 'echo goodbye; exit 6' TERM; echo ready; kill -STOP $$; while :; do sleep 0.05; done`)...)
		e.logged(t, name, "ready")
		e.must(t, "stop", "-t", "110", name)
		if code := exitCode(name); code != "6" {
			t.Errorf("exit %s", code)
		}
	})
}

// testKill sends signals from outside. HUP is agent-init's own.
func testKill(t *testing.T, e *engine, start startArgs) {
	name := e.name(t)
	e.must(t, start(name, "-d", e.base, "bash", "-c",
		`trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'echo usr2; exit 8' USR2; echo ready; while :; do sleep 0.05; done`)...)
	e.logged(t, name, "ready")
	for _, sig := range []string{"HUP", "USR1"} {
		e.must(t, "kill", "-s", sig, name)
	}
	e.logged(t, name, "usr1")
	e.must(t, "kill", "-s", "USR2", name)
	if code := e.must(t, "wait", name); code != "8" {
		t.Errorf("exit %s", code)
	}
	if got := strings.Fields(e.must(t, "logs", name)); !slices.Equal(got, []string{"ready", "usr1", "usr2"}) {
		t.Errorf("the agent said %q", got)
	}
}

// logged waits for a line in a container's log.
func (e *engine) logged(t *testing.T, name, line string) {
	t.Helper()
	eventually(t, name+" says "+strconv.Quote(line), time.Minute, func() bool {
		return slices.Contains(strings.Split(e.docker("logs", name).stdout, "\n"), line)
	})
}

// client is a docker client at a terminal.
type client struct {
	t      *testing.T
	master *os.File
	exited chan struct{}
	cmd    *exec.Cmd

	mu   sync.Mutex
	text strings.Builder
	seen int // what wait has consumed
}

func (e *engine) terminal(t *testing.T, command []string) *client {
	t.Helper()
	return terminalOf(t, exec.Command("docker", command...))
}

// terminalOf starts any command on a terminal.
func terminalOf(t *testing.T, cmd *exec.Cmd) *client {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, master: master, exited: make(chan struct{}), cmd: cmd}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.cmd.Wait(); close(c.exited) }()
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(unix.SIGKILL)
		<-c.exited
		master.Close()
	})
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			c.mu.Lock()
			c.text.Write(buf[:n])
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *client) typed(keys string) {
	c.t.Helper()
	if _, err := c.master.Write([]byte(keys)); err != nil {
		c.t.Fatal(err)
	}
}

// wait waits for text after what it has waited for before.
func (c *client) wait(text string) {
	c.t.Helper()
	c.waitWith(text, func() {})
}

// waitWith calls again each second meanwhile.
func (c *client) waitWith(text string, again func()) {
	c.t.Helper()
	deadline, next := time.Now().Add(time.Minute), time.Now().Add(time.Second)
	for {
		if time.Now().After(next) {
			again()
			next = time.Now().Add(time.Second)
		}
		c.mu.Lock()
		all := c.text.String()
		i := strings.Index(all[c.seen:], text)
		if i >= 0 {
			c.seen += i + len(text)
		}
		c.mu.Unlock()
		if i >= 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("no %q on the terminal, but %q", text, all)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *client) wantExit(want int) {
	c.t.Helper()
	select {
	case <-c.exited:
	case <-time.After(time.Minute):
		c.t.Fatalf("the container does not end: %q", c.text.String())
	}
	if got := c.cmd.ProcessState.ExitCode(); got != want {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.t.Errorf("exit %d, want %d: %q", got, want, c.text.String())
	}
}
