// Package reaper is what PID 1 owes its children: it starts them, reaps every process that ends up with it, forwards
// signals, and ends the whole tree before it reports how the main child ended.
//
// A process has one Reaper, and starts its children through it alone: os/exec and os.Process
// wait for a child by themselves and would race with it for the status. In a process that is
// not PID 1, New makes it the subreaper of its descendants.
package reaper

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper starts processes and reaps all that become its children. Its methods may be called at once.
type Reaper struct {
	log    *slog.Logger
	isInit bool        // PID 1 of its namespace
	adopts bool        // what its descendants leave behind
	spawns chan func() // run on the thread that is the parent of every child
	as     func(pids []int, sig syscall.Signal) error

	// mu is held from fork to registration, around every round of wait4, and around every kill. So no child is reaped
	// unknown, however fast it ends, and no signal goes to a pid that is free for reuse.
	mu    sync.Mutex
	procs map[int]*Process
}

// New makes the calling process a reaper, for as long as it lives; a second one would steal from the first. It ignores
// TTIN and TTOU, so that nothing done to the terminal's foreground group can stop the process, or make it spin, when it
// writes a line there; children get the default action back. With its lock held it calls as, which signals, for a root
// without CAP_KILL, processes that it may not signal. Negative numbers are process groups.
func New(log *slog.Logger, as func(pids []int, sig syscall.Signal) error) (*Reaper, error) {
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become a subreaper: %w", err)
		}
	}
	return begin(log, true, as), nil
}

// NewParent is New for who is the parent of one command, and adopts nothing: what that leaves behind goes on, as the
// child of who reaps orphans here. It leads the session of the terminal that the command has.
func NewParent(log *slog.Logger) *Reaper {
	return begin(log, false, func([]int, syscall.Signal) error { return syscall.EPERM })
}

func begin(log *slog.Logger, adopts bool, as func([]int, syscall.Signal) error) *Reaper {
	r := &Reaper{log: log, isInit: os.Getpid() == 1, adopts: adopts, spawns: make(chan func()), as: as, procs: make(map[int]*Process)}
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)

	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for ; ; <-ended {
			r.reap()
		}
	}()
	go func() {
		// PR_SET_PDEATHSIG fires when the thread that forked ends, not the process: so this one never does.
		runtime.LockOSThread()
		for f := range r.spawns {
			f()
		}
	}()
	return r
}

// Command says what to start. The child leads a process group of its own.
type Command struct {
	Path  string     // file to execute; PATH is not searched
	Args  []string   // with the name it runs under first
	Env   []string   // nothing is inherited
	Dir   string     // empty means the caller's
	Files []*os.File // file descriptors 0, 1, 2, … of the child; nil entries are closed

	// Foreground makes the child's process group the foreground group of the terminal, if one of the first three Files,
	// or TTY, is our controlling terminal and we are in its foreground. Supervise takes the foreground back, for whoever
	// else is in our group; the file has to stay open until then.
	Foreground bool
	TTY        *os.File

	Setsid bool // in a session of its own, without a terminal; Foreground has no effect then
	Helper bool // it serves the caller, and is no part of the tree that Supervise signals and ends
}

// Start executes c. If the caller is not PID 1, the child is killed should the caller die; a
// child that then changes its credentials has to ask for that again.
func (r *Reaper) Start(c Command) (p *Process, err error) {
	done := make(chan struct{})
	r.spawns <- func() {
		p, err = r.fork(c)
		close(done)
	}
	<-done
	return p, err
}

func (r *Reaper) fork(c Command) (*Process, error) {
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Sys: &syscall.SysProcAttr{Setsid: c.Setsid, Setpgid: !c.Setsid}}
	for _, f := range c.Files {
		fd := ^uintptr(0)
		if f != nil {
			fd = f.Fd()
		}
		attr.Files = append(attr.Files, fd)
	}
	if c.Foreground && !c.Setsid {
		// Standard input may be redirected, and the terminal be on the others.
		terminals := slices.Clone(attr.Files[:min(3, len(attr.Files))])
		if c.TTY != nil {
			terminals = append(terminals, c.TTY.Fd())
		}
		for _, fd := range terminals {
			if tty := int(fd); tty >= 0 && inForeground(tty) {
				attr.Sys.Foreground, attr.Sys.Ctty = true, tty
				break
			}
		}
	}
	if !r.isInit {
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	// What is ignored would stay so in the child, while what is caught is reset. A write to the terminal that is
	// interrupted meanwhile is restarted by the kernel, and goes through once they are ignored again.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGTTIN, syscall.SIGTTOU)
	pid, err := syscall.ForkExec(c.Path, c.Args, attr)
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	runtime.KeepAlive(c)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	p := &Process{reaper: r, pid: pid, helper: c.Helper, tty: -1, done: make(chan struct{}), stopped: make(chan struct{}, 1)}
	if attr.Sys.Foreground {
		p.tty = attr.Sys.Ctty
	}
	r.procs[pid] = p
	return p, nil
}

// inForeground reports whether fd is our controlling terminal and we may hand its foreground on.
func inForeground(fd int) bool {
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// reap collects every child that has ended or stopped. One SIGCHLD can stand for many.
func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var w syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &w, syscall.WNOHANG|syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			break
		}
		p := r.procs[pid]
		if w.Stopped() {
			if p != nil {
				select {
				case p.stopped <- struct{}{}:
				default: // there is a token already
				}
			}
			continue
		}
		if p == nil {
			r.log.Debug("reaped an orphan", "pid", pid, "status", Status(w))
			continue
		}
		delete(r.procs, pid)
		p.status = Status(w)
		close(p.done)
	}
}
