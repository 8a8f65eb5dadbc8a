package reaper

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// box is a process in the role "init", normally PID 1 of a new namespace.
type box struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err *lines
}

// kind is where the init runs.
type kind string

const (
	pid1    kind = "pid1"
	notPID1 kind = "not pid1"
)

var kinds = []kind{pid1, notPID1}

type boxOptions struct {
	kind   kind
	noKill bool     // without CAP_KILL
	stdin  *os.File // terminal for 0, 1, 2 and controlling terminal
	closed bool     // with 0, 1, 2 closed
}

func start(t *testing.T, o boxOptions, spec initSpec) *box {
	t.Helper()
	mustrun.Root(t)
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{exe}
	if o.noKill {
		argv = []string{"setpriv", "--bounding-set=-kill", "--inh-caps=-all", "--", exe}
	}
	if o.closed {
		argv = append([]string{"/bin/sh", "-c", `exec "$@" <&- >&- 2>&-`, "sh"}, argv...)
	}
	b := &box{t: t, cmd: exec.Command(argv[0], argv[1:]...)}
	b.cmd.Env = append(os.Environ(), roleVariable+"=init", "REAPER_TEST_SPEC="+string(text))
	// A session of its own, or the shell that the tests run under would count
	// as one that can resume what is stopped.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.kind == pid1 {
		b.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	pipe := func(to **os.File) *lines {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		*to = w
		return readLines(r)
	}
	var stdout, stderr *os.File
	b.out, b.err = pipe(&stdout), pipe(&stderr)
	b.cmd.Stdout, b.cmd.Stderr = stdout, stderr
	if o.stdin != nil {
		b.cmd.Stdin, b.cmd.Stdout = o.stdin, o.stdin
		b.cmd.SysProcAttr.Setctty = true
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	stderr.Close()
	t.Cleanup(func() { _ = b.cmd.Process.Kill(); _ = b.cmd.Wait() })
	return b
}

// exit waits for the init to end and returns its exit code.
func (b *box) exit() int {
	b.t.Helper()
	done := make(chan struct{})
	go func() { _ = b.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		b.t.Fatal("the init does not end")
	}
	return b.cmd.ProcessState.ExitCode()
}

func (b *box) signal(sig syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(sig); err != nil {
		b.t.Fatal(err)
	}
}

// sh waits for the line "ready", which the scripts print when their traps are set.
func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestKernelExitCodes(t *testing.T) {
	for _, k := range kinds {
		for code := 0; code < 256; code += 51 { // all of 0..255 are in TestKernelFastChildren
			b := start(t, boxOptions{kind: k}, initSpec{Argv: sh("exit " + strconv.Itoa(code))})
			if got := b.exit(); got != code {
				t.Errorf("%s: exit %d became %d", k, code, got)
			}
		}
		for _, sig := range []syscall.Signal{1, 2, 3, 4, 6, 8, 9, 11, 13, 14, 15, 31, 35, 64} {
			b := start(t, boxOptions{kind: k}, initSpec{Argv: sh(fmt.Sprintf("ulimit -c 0; kill -%d $$", int(sig)))})
			if got := b.exit(); got != 128+int(sig) {
				t.Errorf("%s: death by signal %d became %d", k, int(sig), got)
			}
		}
	}
}

// Children that end at once are neither lost nor mistaken for each other.
func TestKernelFastChildren(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{Count: 512, Argv: sh("exit 3")})
		if got := b.exit(); got != 3 {
			t.Errorf("%s: exit %d: %v", k, got, drain(b.err))
		}
	}
}

func drain(l *lines) []string {
	var all []string
	for line := range l.c {
		all = append(all, line)
	}
	return all
}

func TestKernelEachSignalOnce(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			b := start(t, boxOptions{kind: k}, initSpec{Role: "record"})
			b.out.until(t, "ready")
			var want []string
			for n := syscall.Signal(1); n <= 64; n++ {
				switch n {
				case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF,
					syscall.SIGTTIN, syscall.SIGTTOU, 32, 33, 34, syscall.SIGUSR2:
					continue
				}
				b.signal(n)
				// One at a time, since the order of pending signals is the kernel's.
				got := b.out.until(t, strconv.Itoa(int(n)))
				if len(got) != 1 {
					t.Errorf("signal %d: the child got %q", int(n), got)
				}
				want = append(want, strconv.Itoa(int(n)))
			}
			b.signal(syscall.SIGUSR2)
			if got := b.out.until(t, strconv.Itoa(int(syscall.SIGUSR2))); len(got) != 1 {
				t.Errorf("after %q the child also got %q", want, got)
			}
			if got := b.exit(); got != 7 {
				t.Errorf("exit %d", got)
			}
		})
	}
}

// TERM reaches the whole group, USR1 the child alone.
func TestKernelSignalTarget(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{Argv: sh(`
			trap 'echo parent usr1' USR1; trap 'echo parent term; wait $c; exit 5' TERM
			(trap 'echo child usr1' USR1; trap 'echo child term; exit' TERM; echo child ready; while :; do sleep 0.02; done) & c=$!
			while :; do sleep 0.02; done`)})
		b.out.until(t, "child ready")
		b.signal(syscall.SIGUSR1)
		b.out.until(t, "parent usr1")
		b.signal(syscall.SIGTERM)
		code, got := b.exit(), drain(b.out)
		slices.Sort(got)
		if want := []string{"child term", "parent term"}; code != 5 || !slices.Equal(got, want) {
			t.Errorf("%s: exit %d after %q, want 5 after %q", k, code, got, want)
		}
	}
}

// A stopped process of the main child's group gets a TERM, and acts on it.
func TestKernelTermEndsAStoppedChild(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{Argv: sh(`
			trap 'wait $c; exit $?' TERM
			sh -c 'trap "exit 9" TERM; echo ready; kill -STOP $$; while :; do sleep 0.02; done' & c=$!; echo ready
			while :; do sleep 0.02; done`)})
		b.out.until(t, "ready") // the one,
		b.out.until(t, "ready") // and the other
		b.signal(syscall.SIGTERM)
		if got := b.exit(); got != 9 {
			t.Errorf("%s: exit %d", k, got)
		}
	}
}

// Who looks at what a signal has done to the tree looks after it was sent.
func TestKernelForwarded(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{Forwarded: true, Argv: sh("echo ready; exec sleep 1000")})
		b.out.until(t, "ready")
		b.signal(syscall.SIGTERM)
		if got := b.err.until(t, "forwarded"); got[len(got)-1] != "forwarded 15: signal 15 (terminated), <nil>" {
			t.Errorf("%s: %q", k, got)
		}
		if got := b.exit(); got != 143 {
			t.Errorf("%s: exit %d", k, got)
		}
	}
}

// A main child that stops itself with nobody there to resume it goes on.
func TestKernelStoppedMainIsResumed(t *testing.T) {
	for _, k := range kinds {
		for _, sig := range []string{"STOP", "TSTP"} {
			b := start(t, boxOptions{kind: k}, initSpec{Argv: sh(`kill -` + sig + ` $$; echo resumed; exit 4`)})
			b.out.until(t, "resumed")
			if got := b.exit(); got != 4 {
				t.Errorf("%s %s: exit %d", k, sig, got)
			}
		}
	}
}

const stubborn = `trap '' TERM INT HUP; `

func TestKernelGrace(t *testing.T) {
	tree := stubborn + `trap 'echo seen' WINCH; (` + stubborn + `setsid sh -c "` + stubborn + ` echo deep; while :; do sleep 1; done") & echo ready; while :; do sleep 1; done`
	for _, k := range kinds {
		for _, c := range []struct {
			name    string
			grace   time.Duration
			signals []syscall.Signal
			code    int
		}{
			{"TERM", 300 * time.Millisecond, []syscall.Signal{syscall.SIGTERM}, 137},
			{"a second TERM shortens it", time.Hour, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, 137},
			{"a third ends it", time.Hour, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT}, 137},
		} {
			t.Run(string(k)+" "+c.name, func(t *testing.T) {
				b := start(t, boxOptions{kind: k}, initSpec{Argv: sh(tree), Grace: c.grace, Left: true})
				for _, line := range []string{"deep", "ready"} {
					if got := b.out.until(t, line); slices.Contains(got[:len(got)-1], "ready") {
						break // they come in either order
					}
				}
				for i, sig := range c.signals {
					if i > 0 && sig == c.signals[i-1] { // or the kernel, or the Go runtime, would take two for one
						b.signal(syscall.SIGWINCH)
						b.out.until(t, "seen")
					}
					b.signal(sig)
				}
				if got := b.exit(); got != c.code {
					t.Errorf("exit %d, want %d: %q", got, c.code, drain(b.err))
				}
				if k == pid1 {
					b.err.until(t, "left 0")
				}
				// The pipe has an end only when the last process of the tree is gone.
				drain(b.out)
			})
		}
	}
}

// What the main child leaves behind gets a TERM and time to act on it, under
// both kinds of init; and if it does not, it is killed.
func TestKernelRestIsEnded(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{Left: k == pid1, Argv: sh(`
			setsid sh -c 'trap "sleep 0.2; echo polite end; exit" TERM; echo ready; while :; do sleep 0.05; done' &
			setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
			sleep 0.5; exit 6`)})
		if got := b.exit(); got != 6 {
			t.Errorf("%s: exit %d", k, got)
		}
		if got := drain(b.out); !slices.Contains(got, "polite end") {
			t.Errorf("%s: %q", k, got)
		}
		if k == pid1 {
			b.err.until(t, "left 0")
		}
	}
}

// A helper is no part of the tree: it ends last.
func TestKernelHelperOutlivesTheTree(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{
			Helper: []string{"/bin/sleep", "1000"},
			Argv:   sh(`setsid sleep 1000 & trap '' TERM; echo ready; while :; do sleep 1; done`),
			Grace:  200 * time.Millisecond,
		})
		b.out.until(t, "ready")
		b.signal(syscall.SIGTERM)
		if got := b.exit(); got != 137 {
			t.Errorf("%s: exit %d", k, got)
		}
		b.err.until(t, "helper alive")
		drain(b.out)
	}
}

// Without CAP_KILL, the caller's fallback signals and ends the agent.
func TestKernelWithoutCapKill(t *testing.T) {
	for _, k := range kinds {
		for _, c := range []struct {
			name, script string
			code         int
			out          string
		}{
			{"polite", `trap 'exit 8' TERM; echo ready; while :; do sleep 0.02; done`, 8, ""},
			{"stubborn", stubborn + `setsid sleep 1000 & echo ready; while :; do sleep 1; done`, 137, ""},
			{"the rest", `trap 'exit 5' TERM; setsid sh -c 'trap "echo polite end; exit" TERM; echo ready; while :; do sleep 0.02; done' &
				while :; do sleep 0.02; done`, 5, "polite end"},
		} {
			t.Run(string(k)+" "+c.name, func(t *testing.T) {
				b := start(t, boxOptions{kind: k, noKill: true}, initSpec{
					UID: 54321, Fallback: true, Argv: sh(c.script), Grace: 500 * time.Millisecond})
				b.out.until(t, "ready")
				b.signal(syscall.SIGTERM)
				if got := b.exit(); got != c.code {
					t.Errorf("exit %d, want %d: %q", got, c.code, drain(b.err))
				}
				if got := strings.Join(drain(b.out), " "); got != c.out {
					t.Errorf("said %q, want %q", got, c.out)
				}
			})
		}
	}
}

// An agent that nobody may kill is left to the end of the namespace.
func TestKernelUnkillable(t *testing.T) {
	b := start(t, boxOptions{kind: pid1, noKill: true}, initSpec{
		UID: 54321, Argv: sh(stubborn + `echo ready; while :; do sleep 1; done`), Grace: 100 * time.Millisecond})
	b.out.until(t, "ready")
	b.signal(syscall.SIGTERM)
	if got := b.exit(); got != 137 {
		t.Errorf("exit %d: %q", got, drain(b.err))
	}
	drain(b.out)
}

// An init that was itself stopped over the end of the grace period, as in a
// container that is paused, has not tried to kill anything yet: it does so then.
func TestKernelPausedOverTheGrace(t *testing.T) {
	b := start(t, boxOptions{kind: pid1}, initSpec{
		Argv: sh(`trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done`), Grace: time.Second, Left: true})
	b.out.until(t, "ready")
	b.signal(syscall.SIGTERM)
	b.out.until(t, "asked")
	b.signal(syscall.SIGSTOP)
	time.Sleep(time.Second + linger + 500*time.Millisecond)
	b.signal(syscall.SIGCONT)
	if got := b.exit(); got != 137 {
		t.Errorf("exit %d: %q", got, drain(b.err))
	}
	b.err.until(t, "left 0")
}

func TestKernelStorm(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{Role: "storm"})
		b.out.until(t, "ready")
		for range 3000 {
			b.signal(syscall.SIGUSR1)
		}
		b.signal(syscall.SIGTERM)
		if got := b.exit(); got != 33 {
			t.Errorf("%s: exit %d", k, got)
		}
	}
}

func TestKernelTenThousandOrphans(t *testing.T) {
	b := start(t, boxOptions{kind: pid1}, initSpec{Role: "orphans", Argv: []string{"10000"}, Left: true})
	b.out.until(t, "ready")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = b.cmd.Process.Signal(syscall.SIGUSR1)
			}
		}
	}()
	code := b.exit()
	close(stop)
	<-stopped
	if code != 42 {
		t.Errorf("exit %d: %q", code, drain(b.err))
	}
	b.err.until(t, "left 0")
}

func TestKernelClosedStdio(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k, closed: true}, initSpec{Argv: sh("exit 21")})
		if got := b.exit(); got != 21 {
			t.Errorf("%s: exit %d", k, got)
		}
	}
}

// The exit is not delayed by a process that holds standard output open: here
// one that is no part of the tree.
func TestKernelExitNotDelayedByOpenStdout(t *testing.T) {
	b := start(t, boxOptions{kind: notPID1}, initSpec{Argv: sh("exit 2")})
	if got := b.exit(); got != 2 { // this test holds the write end until its cleanup
		t.Errorf("exit %d", got)
	}
}

// A child gets every signal action as a program that a shell starts would.
func TestKernelCleanSignalState(t *testing.T) {
	for _, k := range kinds {
		b := start(t, boxOptions{kind: k}, initSpec{Argv: []string{"/bin/cat", "/proc/self/status"}})
		for _, field := range []string{"SigBlk", "SigIgn", "SigCgt"} {
			got := b.out.until(t, field)
			line := got[len(got)-1]
			mask, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			// 32 and 33 are glibc's own. Its posix_spawn, which make starts
			// programs by, leaves them ignored, and Go as they were.
			if mask &^= 3 << 31; mask != 0 {
				t.Errorf("%s: %s", k, line)
			}
		}
		if got := b.exit(); got != 0 {
			t.Errorf("%s: exit %d", k, got)
		}
	}
}

// If an init that is not PID 1 is killed, its children are too.
func TestKernelChildDiesWithKilledInit(t *testing.T) {
	b := start(t, boxOptions{kind: notPID1}, initSpec{Argv: sh("echo ready; exec sleep 1000")})
	b.out.until(t, "ready")
	b.signal(syscall.SIGKILL)
	b.exit()
	drain(b.out) // has an end only when the child is gone
}
