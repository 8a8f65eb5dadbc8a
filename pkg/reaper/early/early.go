// Package early catches the signals that reach PID 1 before main runs.
//
// A Go program that has not called signal.Notify dies of a TERM, even as PID 1, and the kernel drops what has no
// handler. So this leaf package, which imports little more than os/signal, registers in its init: that is as soon as Go
// code can run. Any other than PID 1 is left alone: it may end, as it has started nothing.
package early

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// caught holds signals until somebody reads them. os/signal drops what does not fit.
var caught = make(chan os.Signal, 1024)

func init() {
	if os.Getpid() == 1 {
		Signals()
	}
}

// Signals returns the channel of caught signals, and starts to catch those that would end or stop this process, or that
// a child would inherit as ignored, if that has not begun. There is one channel per process, so it has one reader.
func Signals() <-chan os.Signal {
	signal.Notify(caught, drastic()...)
	return caught
}

// Rest has all others caught too that a child may be meant to get. That takes a millisecond, as the runtime asks a
// thread of its own about each (sigenable in runtime/signal_unix.go), and may go on beside all else. Until then they do
// nothing: the runtime has a handler for each from the beginning.
func Rest() { signal.Notify(caught, forwardable()...) }

// Release gives every signal its default effect back: for commands that should simply end on a TERM or an interrupt.
func Release() {
	signal.Stop(caught)
}

// drastic lists the signals that have an effect also if nobody is told of them: they end or stop this process, or a
// child inherits that they are ignored.
func drastic() []os.Signal {
	return slices.DeleteFunc(forwardable(), func(sig os.Signal) bool {
		switch sig {
		case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, // end it
			syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, // crash it
			syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS,
			syscall.SIGPIPE,                  // ends it where it writes to a standard output that is gone
			syscall.SIGTSTP, syscall.SIGCONT: // have no handler of the runtime's
			return false
		}
		return true
	})
}

// forwardable lists the signals that a child may be meant to get. Those that the kernel sends for a fault are among
// them, because one that a user sent would otherwise crash the Go runtime.
func forwardable() []os.Signal {
	var list []os.Signal
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		case syscall.SIGKILL, syscall.SIGSTOP: // cannot be caught
		case syscall.SIGCHLD, syscall.SIGURG: // about this process: a child ended; the Go scheduler preempts
		case syscall.SIGTTIN, syscall.SIGTTOU: // about this process's use of the terminal; see reaper.New
		case syscall.SIGPROF, 32, 33, 34: // the Go runtime never hands these on
		default: // what nohup or a shell has switched off stays so
			if n != syscall.SIGHUP && n != syscall.SIGINT || !signal.Ignored(n) {
				list = append(list, n)
			}
		}
	}
	return list
}
