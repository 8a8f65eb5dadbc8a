package reaper

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	linger     = 2 * time.Second        // what the rest of the tree gets between TERM and KILL, and after KILL
	hurry      = time.Second            // grace left after a second TERM
	rekill     = 100 * time.Millisecond // between rounds of KILL: a tree that forks needs several
	resumeRest = 200 * time.Millisecond // between resumptions, for a child that stops itself again and again
	look       = 5 * time.Millisecond   // between looks at a tree that is about to end, or to stop
	allStop    = 200 * time.Millisecond // what the rest of main's group gets to stop as well
	lateStop   = 10 * time.Second       // how long a member of the group is looked for that stops later still
)

// Options says how Supervise behaves. The zero value forwards nothing and never kills.
type Options struct {
	Signals <-chan os.Signal // forwarded, each exactly once

	// Grace is how long the tree may go on after the first TERM before all of it is killed; 0 means for ever. A second
	// TERM, or an INT after the first TERM, shortens it to a second at most; a third ends it.
	Grace time.Duration

	// Group reports whether a signal is forwarded to the main child's process group rather than
	// to the child alone. Nil means that TERM, INT, HUP and QUIT are.
	Group func(syscall.Signal) bool

	// Forwarded, if not nil, is called once a signal was sent to the main child. It does not block.
	Forwarded func(syscall.Signal)

	// Next, if not nil, names another process to take main's place, with its status,
	// when that has ended of itself. If it names none, the rest of the tree is ended.
	Next func() *Process
}

// supervision is the state of one Supervise call, owned by its goroutine.
type supervision struct {
	*Reaper
	main    *Process
	options Options

	terms    int              // TERMs seen, and INTs after the first of them
	deadline time.Time        // when the tree is killed; zero: never
	kill     <-chan time.Time // at deadline
	stopped  time.Time        // when the main child last was
	resume   <-chan time.Time // when it may be resumed
	resumed  time.Time        // when that was last done
}

// Supervise waits for main to end, forwarding signals to it meanwhile, then ends the rest of the tree, and returns main's
// status. The tree is, for PID 1, every process of the namespace, else every descendant; but no Helper. The rest is asked
// with TERM and killed after two seconds, or after Options.Grace if that is shorter. A reaper by NewParent leaves the rest.
//
// A main child that survives SIGKILL for two seconds is given up as dead by it, and the caller should exit.
//
// A TERM also resumes what is stopped, so that it can act on it. A main child that was stopped is
// resumed, unless a shell above can do that: then our own process group is stopped too.
func (r *Reaper) Supervise(main *Process, o Options) Status {
	if o.Group == nil {
		o.Group = endsAJob
	}
	s := &supervision{Reaper: r, main: main, options: o}
	var killing time.Time // since when; not the deadline, over which we may have been paused
	for {
		select {
		case sig := <-o.Signals:
			s.forward(sig)
		case <-s.main.stopped:
			s.stopped = time.Now()
			s.resume = time.After(resumeRest - time.Since(s.resumed))
		case <-s.resume:
			s.unstop()
		case <-s.kill:
			if !killing.IsZero() && time.Since(killing) > linger {
				// Without CAP_KILL, an agent can hold this up. Our end as PID 1 takes it along.
				s.log.Error("the agent does not die: leaving it", "pid", s.main.pid)
				return Status(syscall.SIGKILL)
			}
			if killing.IsZero() {
				s.log.Warn("the grace period is over: killing the agent", "grace", o.Grace)
				killing = time.Now()
			}
			s.signalSome(syscall.SIGKILL, nil)
			s.kill = time.After(rekill)
		case <-s.main.done:
			if o.Next != nil && s.terms == 0 {
				if next := o.Next(); next != nil {
					s.main = next
					continue
				}
			}
			if s.adopts {
				s.takeTerminalBack()
				s.endRest()
			}
			return s.main.status
		}
	}
}

func endsAJob(sig syscall.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP || sig == syscall.SIGQUIT
}

func (s *supervision) forward(received os.Signal) {
	sig, ok := received.(syscall.Signal)
	if !ok {
		return
	}
	if sig == syscall.SIGCONT {
		s.regainTerminal()
	}
	err := error(syscall.ESRCH)
	if s.options.Group(sig) {
		err = s.main.SignalGroup(sig)
	}
	if errors.Is(err, syscall.ESRCH) { // or the child has left the group that it led
		err = s.main.Signal(sig)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		s.log.Warn("cannot forward a signal", "signal", sig, "error", err)
	}
	if sig == syscall.SIGTERM || sig == syscall.SIGCONT {
		s.continueGroup()
	}
	if s.options.Forwarded != nil {
		s.options.Forwarded(sig)
	}
	if sig == syscall.SIGTERM || sig == syscall.SIGINT && s.terms > 0 {
		s.terms++
		s.setDeadline()
	}
}

// setDeadline starts the grace period, or shortens it.
func (s *supervision) setDeadline() {
	if s.options.Grace <= 0 {
		return
	}
	end := time.Now()
	switch s.terms {
	case 1:
		end = end.Add(s.options.Grace)
	case 2:
		end = end.Add(hurry)
	}
	if s.deadline.IsZero() || end.Before(s.deadline) {
		s.deadline = end
		s.kill = time.After(time.Until(end))
	}
}

// continueGroup resumes those of main's group that are stopped, and no others: to them it would be a signal too many.
func (s *supervision) continueGroup() {
	s.signalSome(syscall.SIGCONT, func(p proc) bool {
		return p.stopped() && (p.pid == s.main.pid || p.pgrp == s.main.pid)
	})
}

// unstop resumes main's group once all of it has stopped. ^Z stops all members, but one that catches it (less, vim) does
// so by itself, a moment later: resumed too early, it would be stopped for good.
func (s *supervision) unstop() {
	began := time.Now()
	all := processes()
	self, main := all[os.Getpid()], all[s.main.pid]
	stopped, running := 0, 0
	for _, p := range all {
		switch {
		case p.pid != s.main.pid && p.pgrp != s.main.pid || p.dead():
		case p.stopped():
			stopped++
		default:
			running++
		}
	}
	since := time.Since(s.stopped)
	if main.stopped() && running > 0 && since < allStop {
		s.resume = time.After(max(look, 4*time.Since(began))) // looking must not take all of the time
		return
	}
	if stopped+running > 1 && since < lateStop {
		s.resume = time.After(max(since, allStop))
	}
	if stopped == 0 {
		return // somebody else has resumed it
	}
	if main.stopped() && !s.isInit && s.terms == 0 && main.session == self.session && !orphaned(all, self) {
		s.resume = nil
		s.log.Debug("the agent is suspended: stopping, for the shell to continue")
		if err := syscall.Kill(0, syscall.SIGSTOP); err != nil {
			s.log.Warn("cannot stop", "error", err)
		}
		return
	}
	s.log.Info("the agent was stopped and nobody else can resume it: resuming")
	s.resumed = time.Now()
	s.continueGroup()
}

// regainTerminal hands the terminal's foreground to main's group again after a shell has put us there.
func (s *supervision) regainTerminal() {
	if s.main.tty < 0 || !inForeground(s.main.tty) {
		return
	}
	if err := unix.IoctlSetPointerInt(s.main.tty, unix.TIOCSPGRP, s.main.pid); err != nil {
		s.log.Warn("cannot hand the terminal on", "error", err)
	}
}

// takeTerminalBack makes our group the foreground again if main's still is, for the script that runs us.
func (s *supervision) takeTerminalBack() {
	if s.main.tty < 0 {
		return
	}
	pgrp, err := unix.IoctlGetInt(s.main.tty, unix.TIOCGPGRP)
	if err == nil && pgrp == s.main.pid {
		err = unix.IoctlSetPointerInt(s.main.tty, unix.TIOCSPGRP, unix.Getpgrp())
	}
	if err != nil && !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOTTY) { // it was hung up
		s.log.Warn("cannot take the terminal back", "error", err)
	}
}

// endRest ends what main has left behind: asks, waits, kills, waits.
func (s *supervision) endRest() {
	if s.signalSome(syscall.SIGTERM, nil) == 0 {
		return
	}
	s.signalSome(syscall.SIGCONT, proc.stopped)

	patience := linger
	if s.options.Grace > 0 {
		patience = min(patience, s.options.Grace)
	}
	if !s.deadline.IsZero() {
		patience = min(patience, max(0, time.Until(s.deadline)))
	}
	if s.awaitEmpty(patience, 0) {
		return
	}
	if !s.awaitEmpty(linger, syscall.SIGKILL) {
		s.log.Warn("processes are left that do not die")
	}
}

// awaitEmpty waits until the tree is empty, sending sig at every look unless
// it is 0, and reports whether it is. A further TERM or INT ends the wait.
func (s *supervision) awaitEmpty(patience time.Duration, sig syscall.Signal) bool {
	timeout := time.After(patience)
	for {
		started := time.Now()
		if s.signalSome(sig, nil) == 0 {
			s.reap()
			return true
		}
		select {
		case <-time.After(max(look, 2*time.Since(started))): // looking must not take all of the time
		case received := <-s.options.Signals:
			if sig == 0 && (received == syscall.SIGTERM || received == syscall.SIGINT) {
				return false
			}
		case <-timeout:
			return false
		}
	}
}
