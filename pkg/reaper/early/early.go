// Package early catches the signals that reach PID 1 before main runs.
//
// A Go program that has not called signal.Notify dies of a TERM, even as PID 1, and the kernel drops what has no
// handler. So this leaf package, which imports little more than os/signal, registers in its init: that is as soon as Go
// code can run. Any other than PID 1 is left alone: it may end, as it has started nothing.
package early

import (
	"os"
	"os/signal"
	"syscall"
)

// caught holds signals until somebody reads them. os/signal drops what does not fit.
var caught = make(chan os.Signal, 1024)

func init() {
	if os.Getpid() == 1 {
		Signals()
	}
}

// Signals returns the channel of caught signals, and starts to catch them, if that has not begun. There is one channel
// per process, so it has one reader. A child does not inherit what is caught as ignored.
func Signals() <-chan os.Signal {
	signal.Notify(caught, forwardable()...)
	return caught
}

// Release gives every signal its default effect back: for commands that should simply end on a TERM or an interrupt.
func Release() {
	signal.Stop(caught)
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
