// Package session drives agent-init's sessions on a real terminal: tmux types
// and looks, in panes of its own server, while agent-init is PID 1 of
// namespaces of its own.
package session

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	agentUID = "1000"
	patience = lab.Patience
)

// box is a container without a network, as far as agent-init can tell. The
// network is not what is tested here.
const boxScript = `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir -p /var/log/agent-init &&
mount -t tmpfs -o mode=755 tmpfs /var/log/agent-init && mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts /dev/pts &&
mount --bind /dev/pts/ptmx /dev/ptmx && exec "$@"`

// rig is a tmux server, and at most one agent-init.
type rig struct {
	*testing.T
	dir    string
	binary string
	panes  int
	outer  int // pid of what made the namespaces
}

func newRig(t *testing.T) *rig {
	lab.Require(t)
	for _, tool := range []string{"tmux", "unshare", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: see test/prepare.sh", err)
		}
	}
	r := &rig{T: t, dir: t.TempDir(), binary: lab.Binary(t)}
	t.Cleanup(func() {
		if t.Failed() {
			for n := range r.panes {
				t.Logf("pane %d:\n%s", n, r.screen(n))
			}
		}
		_ = exec.Command("tmux", r.tmuxArgs("kill-server")...).Run()
		if keeper := r.keeper(); keeper != 0 { // its end takes the namespace along
			_ = syscall.Kill(keeper, syscall.SIGKILL)
		}
	})
	return r
}

func (r *rig) tmuxArgs(args ...string) []string {
	return append([]string{"-u", "-S", filepath.Join(r.dir, "tmux"), "-f", "/dev/null"}, args...)
}

func (r *rig) tmux(args ...string) string {
	r.Helper()
	cmd := exec.Command("tmux", r.tmuxArgs(args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8", "TERM=xterm-256color"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// pane runs a shell command in a pane of its own, of a size, and returns its
// number. How the command ended is shown below its output.
func (r *rig) pane(cols, rows int, command string) int {
	r.Helper()
	n := r.panes
	r.panes++
	script := filepath.Join(r.dir, fmt.Sprintf("pane%d", n))
	text := "#!/bin/sh\n" + command + "\necho \"[exit $?]\"\nexec sleep 1000000\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		r.Fatal(err)
	}
	r.tmux("new-session", "-d", "-s", name(n), "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows), script)
	r.tmux("set-option", "-t", name(n), "status", "off")
	return n
}

func name(n int) string { return "p" + strconv.Itoa(n) }

// start runs agent-init in a pane, and waits until the session is there.
func (r *rig) start(cols, rows int, flags, command string) int {
	r.Helper()
	n := r.pane(cols, rows, r.runLine(flags, command))
	r.await()
	return n
}

func (r *rig) runLine(flags, command string) string {
	return fmt.Sprintf("exec 3>&- ; sh -c 'echo $$ >%s/outer; exec unshare -npfm --kill-child sh -c \"$0\" sh \"$@\"' %s %s run --unsafe-no-firewall --user %s:%[4]s --config /run/none --grace 1h %s -- %s 2>>%[1]s/stderr",
		r.dir, quote(boxScript), r.binary, agentUID, flags, command)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// await waits until the session's server serves, and its first window is
// there.
func (r *rig) await() {
	r.Helper()
	r.eventually("the session does not start", func() bool {
		data, err := os.ReadFile(filepath.Join(r.dir, "outer"))
		if err != nil {
			return false
		}
		if r.outer, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
			return false
		}
		if r.keeper() == 0 {
			return false
		}
		out, err := r.in("root", "sessions")
		return err == nil && strings.Contains(out, "pid")
	})
}

// keeper is PID 1 of the box, by the number that it has out here.
func (r *rig) keeper() int {
	if r.outer == 0 {
		return 0
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", r.outer, r.outer))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(data))
	if len(f) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(f[0])
	return pid
}

// child is the keeper's child that runs agent-init's command.
func (r *rig) child(command string) int {
	r.Helper()
	dir := fmt.Sprintf("/proc/%d/task", r.keeper())
	threads, err := os.ReadDir(dir)
	if err != nil {
		r.Fatal(err)
	}
	for _, t := range threads {
		data, _ := os.ReadFile(filepath.Join(dir, t.Name(), "children"))
		for _, f := range strings.Fields(string(data)) {
			line, _ := os.ReadFile("/proc/" + f + "/cmdline")
			if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == command {
				pid, _ := strconv.Atoi(f)
				return pid
			}
		}
	}
	return 0
}

// enter is a command line that runs another inside of the box, as a user.
func (r *rig) enter(user string, args ...string) []string {
	line := []string{"nsenter", "-t", strconv.Itoa(r.keeper()), "-m", "-p", "-n", "--"}
	if user != "root" {
		line = append(line, "setpriv", "--reuid="+user, "--regid="+user, "--clear-groups", "--")
	}
	return append(line, args...)
}

// in runs agent-init inside of the box.
func (r *rig) in(user string, args ...string) (string, error) {
	line := r.enter(user, append([]string{r.binary}, args...)...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *rig) must(user string, args ...string) string {
	r.Helper()
	out, err := r.in(user, args...)
	if err != nil {
		r.Fatalf("agent-init %q as %s: %v: %s", args, user, err, out)
	}
	return out
}

// attach shows the session in a pane.
func (r *rig) attach(cols, rows int, user, env, args string) int {
	r.Helper()
	line := strings.Join(r.enter(user, "env", "-i", "TERM=xterm-256color", "PATH=/usr/bin:/bin"), " ")
	n := r.pane(cols, rows, line+" "+env+" "+r.binary+" attach "+args)
	return n
}

func (r *rig) screen(n int) string {
	out, err := exec.Command("tmux", r.tmuxArgs("capture-pane", "-p", "-t", name(n))...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(string(out), "\n ")
}

// coloured is the screen with its attributes.
func (r *rig) coloured(n int) string { return r.tmux("capture-pane", "-e", "-p", "-t", name(n)) }

// line types a line, without Enter for an empty end.
func (r *rig) line(n int, text string) {
	r.Helper()
	r.tmux("send-keys", "-t", name(n), "-l", text)
	r.tmux("send-keys", "-t", name(n), "Enter")
}

func (r *rig) keys(n int, keys ...string) {
	r.Helper()
	r.tmux(append([]string{"send-keys", "-t", name(n)}, keys...)...)
}

// shows waits until a pane shows a text.
func (r *rig) shows(n int, text string) {
	r.Helper()
	r.eventually(fmt.Sprintf("pane %d does not show %q", n, text), func() bool { return strings.Contains(r.screen(n), text) })
}

func (r *rig) hides(n int, text string) {
	r.Helper()
	r.eventually(fmt.Sprintf("pane %d still shows %q", n, text), func() bool { return !strings.Contains(r.screen(n), text) })
}

func (r *rig) eventually(what string, ok func() bool) {
	r.Helper()
	if !r.comes(ok) {
		stderr, _ := os.ReadFile(filepath.Join(r.dir, "stderr"))
		r.Fatalf("%s\n%s", what, stderr)
	}
}

// comes waits for ok, and reports whether it came.
func (r *rig) comes(ok func() bool) bool {
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
