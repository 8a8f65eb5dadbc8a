package container

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testSession looks at sessions from outside of the container, by the engine's client.
func testSession(t *testing.T, e *engine, _ *internet) {
	shell := []string{"-e", "PS1=prompt:", e.base, "bash", "--norc", "--noprofile", "-i"}
	running := func(name string) bool {
		return e.must(t, "inspect", "--format", "{{.State.Running}}", name) == "true"
	}
	t.Run("attached", func(t *testing.T) {
		name := e.name(t)
		c := e.terminal(t, args([]string{"run", "-it", "--name", name}, privileges(), []string{"--read-only", "--tmpfs", "/tmp"}, shell))
		c.wait("prompt:")
		c.typed("echo he''llo $AGENT_SESSION\r")
		c.wait("hello agent")
		c.typed("\x1dd")
		c.wait("the session goes on")
		c.typed("x")
		c.wait("hello agent")

		root := e.terminal(t, []string{"exec", "-it", name, "agent-init", "attach"})
		root.wait("hello agent")
		agent := e.terminal(t, []string{"exec", "-it", "-u", "1000", "-e", "LC_ALL=C", "-e", "TERM=xterm", name, "agent-init", "attach", "-r"})
		agent.wait("hello agent")
		agent.typed("exit 1\r")
		root.typed("echo fro''m root; id -u\r")
		agent.wait("from root")
		c.wait("from root")
		root.typed("exit 7\r")
		root.wantExit(7)
		agent.wantExit(7)
		c.wantExit(7)
	})
	t.Run("closed-laptop", func(t *testing.T) {
		name := e.name(t)
		c := e.terminal(t, args([]string{"run", "-it", "--name", name}, privileges(), shell))
		c.wait("prompt:")
		c.typed("echo be''fore\r")
		c.wait("before")
		if err := c.cmd.Process.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-c.exited
		again := e.terminal(t, []string{"attach", name})
		again.wait("before") // nobody has typed
		again.typed("echo a''fter\r")
		again.wait("after")
		again.typed("\x10\x11") // the engine's own way to leave
		<-again.exited
		if !running(name) {
			t.Fatal("the container has ended")
		}
		again = e.terminal(t, []string{"attach", name})
		again.wait("after")
		again.typed("exit 3\r")
		again.wantExit(3)
	})
	t.Run("detached", func(t *testing.T) {
		name := e.name(t)
		e.must(t, args([]string{"run", "-d", "-e", "AGENT_INIT_SESSION=always", "-e", "AGENT_SESSION=work", "--name", name}, privileges(), shell)...)
		eventually(t, "there is a session", time.Minute, func() bool {
			return strings.Contains(e.docker("exec", name, "agent-init", "sessions").stdout, "session work")
		})
		c := e.terminal(t, []string{"exec", "-it", "-u", "1000", name, "agent-init", "attach"})
		c.wait("prompt:")
		c.typed("stty size; ls -l /proc/self/fd/0 >/dev/null && echo x >$(tty) && echo by na''me\r")
		c.wait("40 120")
		c.wait("by name")
		c.typed("\x1dd")
		c.wait("detached")
		c.wantExit(0)
		eventually(t, "status says that nobody is attached", time.Minute, func() bool {
			return strings.Contains(e.docker("exec", name, "agent-init", "status").stdout, "work: 1 window, 0 clients")
		})
		tty := e.terminal(t, []string{"exec", "-it", name, "agent-init", "exec", "-t", "--", "bash", "-c", `tty; id -u; exit 4`})
		tty.wait("/dev/pts/")
		tty.wait("1000")
		tty.wantExit(4)
	})
}
