// Package gvisor runs agent-init inside of gVisor, under a real runsc, and
// judges it by what arrives on the far side. test/gvisor.sh makes what it needs.
package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
)

const policyDir = "/etc/agent-init"

// patience is how long a step may take before a test gives up. It measures
// nothing: a sandbox inside of a virtual machine may stall for seconds.
const patience = 3 * time.Minute

// sandbox is one container under runsc, and the internet that it is in.
type sandbox struct {
	*testing.T
	lab    *lab.Lab
	box    *lab.Box // its network namespace, from outside
	dir    string
	stdout *lockedBuffer
	stderr *lockedBuffer
	done   chan struct{}
	code   *int // valid when done is closed
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// need fails, or skips where that is allowed, if test/gvisor.sh has not
// prepared what the tests need.
func need(t *testing.T) {
	t.Helper()
	lab.Require(t)
	for _, name := range []string{"AGENT_INIT_RUNSC", "AGENT_INIT_GVISOR_ROOT", "AGENT_INIT_POKE"} {
		if os.Getenv(name) == "" {
			mustrun.Lacks(t, "%s is not set: run test/gvisor.sh", name)
		}
	}
}

// options of a sandbox. The zero value is what the documentation asks for.
type options struct {
	caps   []string
	files  image
	flags  []string // of runsc, besides the rig's own
	boxing lab.BoxOptions
}

// bootIn runs args as PID 1 of a new sandbox.
func bootIn(t *testing.T, l *lab.Lab, list string, o options, args ...string) *sandbox {
	t.Helper()
	s := &sandbox{T: t, lab: l, box: l.NewBox(o.boxing), dir: tempDir(t), done: make(chan struct{}),
		stdout: new(lockedBuffer), stderr: new(lockedBuffer), code: new(int)}
	if o.caps == nil {
		o.caps = runCaps()
	}
	if o.files == nil {
		o.files = image{}
	}
	o.files[policyDir+"/allowlist.txt"] = list
	writeBundle(t, s.dir, l.CAFile(), namespace(t, s.box), o.files, o.caps, args)
	cmd := s.runsc(append(o.flags, "run", "--bundle", s.dir, "box")...)
	cmd.Stdout, cmd.Stderr = s.stdout, s.stderr
	// It ends with this process, however that ends. What the kernel looks at is
	// the thread.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(s.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			*s.code = exitCode(cmd.Wait())
		}
	}()
	must(t, <-started)
	t.Cleanup(func() {
		_ = s.runsc("kill", "--all", "box", "KILL").Run()
		select {
		case <-s.done:
		case <-time.After(patience):
			t.Errorf("the sandbox does not end")
		}
		_ = s.runsc("delete", "--force", "box").Run()
		if t.Failed() {
			t.Logf("agent-init said: %s%s", s.stdout.String(), s.stderr.String())
		}
	})
	return s
}

// runsc is a command of runsc about this sandbox, behind flags that win over the
// rig's own.
func (s *sandbox) runsc(args ...string) *exec.Cmd {
	global := []string{
		"--root", filepath.Join(s.dir, "state"), "--platform=systrap", "--network=sandbox", "--ignore-cgroups",
		// What a process sends has left the sandbox when its system call returns: a
		// capture that comes later misses nothing.
		"--qdisc=none",
		"--overlay2=root:memory", "--net-raw", "--log", filepath.Join(s.dir, "runsc.log"),
	}
	return exec.Command(os.Getenv("AGENT_INIT_RUNSC"), append(global, args...)...)
}

// result is how a command in the sandbox ended.
type result struct {
	stdout, stderr string
	code           int
}

func (r result) String() string {
	return fmt.Sprintf("exit %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
}

// as runs a command in the sandbox as "docker exec -u uid" does.
func (s *sandbox) as(uid uint32, args ...string) result {
	s.Helper()
	exec := []string{"exec", "--user", fmt.Sprintf("%d:%d", uid, uid)}
	if uid == 0 {
		for _, c := range runCaps() {
			exec = append(exec, "--cap", "CAP_"+c)
		}
	}
	cmd := s.runsc(append(append(exec, "box"), args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(s.T, cmd.Start())
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	code := exitCode(cmd.Wait())
	return result{out.String(), errs.String(), code}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// wait returns the exit code of PID 1.
func (s *sandbox) wait() int {
	s.Helper()
	select {
	case <-s.done:
		return *s.code
	case <-time.After(patience):
		s.Fatalf("PID 1 does not end")
		return -1
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tempDir is removed at the end, with the namespace that runsc mounts in it.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-init-gvisor-")
	must(t, err)
	t.Cleanup(func() {
		err := unix.Unmount(filepath.Join(dir, "state", "null-netns"), unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Errorf("clean up: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return dir
}

// namespace is a path by which runsc finds the network namespace of b.
func namespace(t *testing.T, b *lab.Box) string {
	t.Helper()
	fd := -1
	must(t, b.Net.Do(func() (err error) {
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}))
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
}
