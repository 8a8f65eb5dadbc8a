package reaper

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// Process is a child that Start has made. Its methods may be called at once.
type Process struct {
	reaper  *Reaper
	pid     int
	helper  bool
	tty     int           // terminal whose foreground it was given, or -1
	stopped chan struct{} // one token after it was stopped
	done    chan struct{} // closed after status is set
	status  Status
}

// Pid is the process id, which another process may have once Done is closed.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status waits until the process has ended and says how.
func (p *Process) Status() Status {
	<-p.done
	return p.status
}

// Wait is Status that gives up when ctx ends, with ctx's error.
func (p *Process) Wait(ctx context.Context) (Status, error) {
	select {
	case <-p.done:
		return p.status, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Signal sends sig to the process. It returns os.ErrProcessDone if that was reaped, so no other
// process that has got its pid is ever hit, and syscall.EPERM if we may not, nor its user.
func (p *Process) Signal(sig syscall.Signal) error { return p.kill(p.pid, sig) }

// SignalGroup sends sig to the process's group, if the process was not reaped. Errors are Signal's.
func (p *Process) SignalGroup(sig syscall.Signal) error { return p.kill(-p.pid, sig) }

// Children are the processes that it is the parent of.
func (p *Process) Children() (pids []int) {
	for _, c := range processes() {
		if c.ppid == p.pid && !c.dead() {
			pids = append(pids, c.pid)
		}
	}
	return pids
}

// Job is the process, which leads a session, its children, and the groups that these lead. kill kills all of them that are
// left, also when the process has ended meanwhile. What was forked behind a look at all processes is found by the next one:
// kill returns when none is left, or after two seconds.
func (p *Process) Job() (kill func()) {
	groups := append(p.Children(), p.pid)
	return func() {
		for end := time.Now().Add(linger); ; time.Sleep(look) {
			n := p.reaper.signalSome(syscall.SIGKILL, func(q proc) bool {
				// By now the pid may be another's. A number that still is a group and a session is nobody else's pid.
				return !q.dead() && slices.Contains(groups, q.pgrp) && slices.Contains(groups, q.session)
			})
			if n == 0 || time.Now().After(end) {
				return
			}
		}
	}
}

func (p *Process) kill(target int, sig syscall.Signal) error {
	p.reaper.mu.Lock()
	defer p.reaper.mu.Unlock()
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
	}
	err := syscall.Kill(target, sig)
	if err == syscall.EPERM {
		err = p.reaper.as([]int{target}, sig)
	}
	return err
}

// Status is how a process ended.
type Status syscall.WaitStatus

// Code is the exit code that a shell would report: the process's own, or 128+n if signal n killed it.
func (s Status) Code() int {
	if w := syscall.WaitStatus(s); !w.Signaled() {
		return w.ExitStatus()
	}
	return 128 + int(syscall.WaitStatus(s).Signal())
}

// String is for log lines: "exit 3" or "signal 15 (terminated)".
func (s Status) String() string {
	if w := syscall.WaitStatus(s); w.Signaled() {
		return fmt.Sprintf("signal %d (%v)", int(w.Signal()), w.Signal())
	}
	return fmt.Sprintf("exit %d", s.Code())
}
