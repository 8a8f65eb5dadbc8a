package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab/container"
	"github.com/agent-init/agent-init/internal/netns"
)

// Patience is how long is waited for what has to happen before a test fails for
// want of it. It is no measure of anything: on a loaded machine a test takes longer,
// and does not fail.
const Patience = 5 * time.Minute

// Cmd is a command to run in a box.
type Cmd struct {
	Args     []string
	Env      []string // besides the box's own
	UID, GID uint32   // GID 0 with UID not 0: the same as UID
	Groups   []uint32 // supplementary
	Dir      string   // default /
	Stdin    string   // what can be read from standard input
	Input    *os.File // is standard input itself, in place of Stdin
	TTY      *os.File // the slave of a terminal: takes the place of all three descriptors

	// Timeout kills the command; 0 is twice Patience. Start has none.
	Timeout time.Duration
}

// Result is how a command of a box ended.
type Result struct {
	Stdout, Stderr string
	Code           int  // exit status; 128+n if signal n killed it
	TimedOut       bool // killed by the lab, see Cmd.Timeout
	Took           time.Duration
}

// String shows all of it, for messages of tests.
func (r Result) String() string {
	return fmt.Sprintf("exit %d (timed out: %t) after %v\nstdout: %s\nstderr: %s",
		r.Code, r.TimedOut, r.Took.Round(time.Millisecond), r.Stdout, r.Stderr)
}

// Process is a running command: the PID 1 of a box, or one started by Exec.
type Process struct {
	cmd    *exec.Cmd
	out    *output
	err    *output
	begin  time.Time
	done   chan struct{}
	result Result // valid when done is closed

	ours, theirs []*os.File // ends of the pipes
	copying      sync.WaitGroup
}

// Pid is the process's id on the machine.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal from outside of the box.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Stdout returns what the process has written so far; Stderr likewise.
func (p *Process) Stdout() string { return p.out.String() }

// Stderr returns what the process has written to standard error so far.
func (p *Process) Stderr() string { return p.err.String() }

// Wait waits for the end; after timeout, or Patience if that is longer (0: twice Patience), it kills the process.
func (p *Process) Wait(timeout time.Duration) Result {
	if timeout != 0 {
		timeout = max(timeout, Patience)
	}
	return p.wait(timeout)
}

// wait is Wait for what may be killed sooner, see Cmd.Timeout.
func (p *Process) wait(timeout time.Duration) Result {
	if timeout == 0 {
		timeout = 2 * Patience
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-p.done:
		return p.result
	case <-t.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	r := p.result
	r.TimedOut = true
	return r
}

// WaitOutput waits until stdout and stderr together contain text; it reports
// whether they did before the process ended or timeout, or Patience, passed.
func (p *Process) WaitOutput(text string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), max(timeout, Patience))
	defer cancel()
	for {
		changed := p.out.changed()
		if strings.Contains(p.Stdout(), text) || strings.Contains(p.Stderr(), text) {
			return true
		}
		select {
		case <-changed:
		case <-p.done:
			return strings.Contains(p.Stdout(), text) || strings.Contains(p.Stderr(), text)
		case <-ctx.Done():
			return false
		}
	}
}

// prepare sets up the descriptors of c; the caller says what is started, in the right place. It makes the pipes, and not
// the thread that starts the command: that is the agent already, and a pipe belongs to who has made it, who may open it again.
func prepare(c Cmd) (_ *Process, err error) {
	p := &Process{cmd: &exec.Cmd{}, done: make(chan struct{})}
	wake := &waker{ch: make(chan struct{})}
	p.out, p.err = &output{wake: wake}, &output{wake: wake}
	if c.TTY != nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = c.TTY, c.TTY, c.TTY
		return p, nil
	}
	defer func() {
		if err != nil {
			p.abandon()
		}
	}()
	for _, to := range []struct {
		stream *io.Writer
		output *output
	}{{&p.cmd.Stdout, p.out}, {&p.cmd.Stderr, p.err}} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		*to.stream = w
		p.carry(r, w, func() { _, _ = io.Copy(to.output, r) })
	}
	if c.Input != nil {
		p.cmd.Stdin = c.Input
	} else if c.Stdin != "" {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.cmd.Stdin = r
		p.carry(w, r, func() {
			_, _ = io.WriteString(w, c.Stdin) // what the command doesn't read is its own affair
			_ = w.Close()
		})
	}
	return p, nil
}

// carry runs copying beside the process, from or to our end of a pipe.
func (p *Process) carry(ours, theirs *os.File, copying func()) {
	p.ours, p.theirs = append(p.ours, ours), append(p.theirs, theirs)
	p.copying.Go(copying)
}

// abandon is for a process that could not be started.
func (p *Process) abandon() {
	closeAll(p.theirs)
	closeAll(p.ours)
	p.copying.Wait()
}

// started collects what the process writes, and its end.
func (p *Process) started() {
	closeAll(p.theirs)
	p.begin = time.Now()
	go p.reap()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// process translates c for labbox.
func (b *Box) process(c Cmd) (container.Process, error) {
	if len(c.Args) == 0 {
		return container.Process{}, errors.New("no command")
	}
	caps, err := capNumbers(b.opts.Caps)
	if err != nil {
		return container.Process{}, err
	}
	home := "/root"
	if c.UID != 0 {
		home = "/home/agent"
		if c.GID == 0 {
			c.GID = c.UID
		}
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "HOSTNAME=" + b.name}
	if slices.ContainsFunc(b.opts.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		env = env[1:]
	}
	env = append(append(env, b.opts.Env...), c.Env...)
	return container.Process{Args: c.Args, Env: env, Dir: c.Dir, UID: c.UID, GID: c.GID, Groups: c.Groups,
		Caps: caps, NoNewPrivs: b.opts.NoNewPrivs, TTY: c.TTY != nil}, nil
}

// reap collects the end of a started process.
func (p *Process) reap() {
	err := p.cmd.Wait()
	copied := make(chan struct{})
	go func() {
		p.copying.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(3 * time.Second): // a dead process's children keep them open
	}
	closeAll(p.ours)
	<-copied
	r := Result{Stdout: p.out.String(), Stderr: p.err.String(), Took: time.Since(p.begin), Code: -1}
	if st, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		if r.Code = st.ExitStatus(); st.Signaled() {
			r.Code = 128 + int(st.Signal())
		}
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		r.Stderr += "\nlab: " + err.Error()
	}
	p.result = r
	close(p.done)
}

// output is a buffer that can be read while it is written.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	wake *waker
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	n, err := o.buf.Write(p)
	o.mu.Unlock()
	o.wake.wake()
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) changed() <-chan struct{} { return o.wake.wait() }

// waker tells any number of waiters that something happened.
type waker struct {
	mu sync.Mutex
	ch chan struct{}
}

func (w *waker) wait() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ch
}

func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.ch)
	w.ch = make(chan struct{})
}

// ReadFile reads a file of the running box as root, from outside.
func (b *Box) ReadFile(path string) ([]byte, error) {
	root, err := b.root()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(relative(path))
}

// WriteFile writes a file of the running box as root, from outside. Unlike a
// mount it can't be told from a change made inside.
func (b *Box) WriteFile(path string, data []byte, mode os.FileMode) error {
	root, err := b.root()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.WriteFile(relative(path), data, mode); err != nil {
		return err
	}
	return root.Chmod(relative(path), mode)
}

// Remount changes the options of a mount of the running box.
func (b *Box) Remount(path, options string) error {
	init := b.running.get()
	if init == nil {
		return errors.New("box isn't running")
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", init.Pid()))
	if err != nil {
		return err
	}
	defer ns.Close()
	return netns.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare filesystem context: %w", err)
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter the box: %w", err)
		}
		if err := unix.Mount("", path, "", unix.MS_REMOUNT, options); err != nil {
			return fmt.Errorf("remount %s: %w", path, err)
		}
		return nil
	})
}

func (b *Box) root() (*os.Root, error) {
	p := b.running.get()
	if p == nil {
		return nil, errors.New("box isn't running")
	}
	return os.OpenRoot(fmt.Sprintf("/proc/%d/root/", p.Pid()))
}

func relative(path string) string {
	rel, err := filepath.Rel("/", filepath.Clean("/"+path))
	if err != nil {
		return path
	}
	return rel
}
