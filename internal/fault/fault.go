// Package fault has what a command ends with: an exit code, one cause and one remedy.
package fault

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes of agent-init itself (sysexits.h where one fits). Everything else
// is the status of the command that it ran: its exit code, or 128+n if signal n
// ended it.
const (
	OK           = 0
	Failure      = 1   // status: no; and what has no code of its own
	Usage        = 64  // EX_USAGE
	SelfTest     = 70  // EX_SOFTWARE: the confinement could not be proved
	Rules        = 71  // EX_OSERR: the kernel refused the rules
	Privilege    = 77  // EX_NOPERM: a capability is missing
	Policy       = 78  // EX_CONFIG: bad policy or allowlist
	TerminalLost = 3   // of the client on the container's terminal: there is nothing to show on any more
	NoExec       = 126 // the command is not executable
	NotFound     = 127 // the command was not found
)

// Fault is an error that ends a command: what went wrong, what to do about it,
// and the exit code that tells a script the same.
type Fault struct {
	Code   int
	Cause  error
	Remedy string
}

func (f *Fault) Error() string { return f.Cause.Error() }
func (f *Fault) Unwrap() error { return f.Cause }

// New makes a fault. The cause is formatted as by fmt.Errorf.
func New(code int, remedy, format string, args ...any) *Fault {
	return &Fault{Code: code, Cause: fmt.Errorf(format, args...), Remedy: remedy}
}

// Of is the fault that err is, or one of its own for what failed while it was
// doing that.
func Of(err error, doing string) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return New(Rules, "run it again with --log-level debug", "%s: %w", doing, err)
}

// Status carries the exit status of a command that ran: nothing is printed.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Report writes err for a person, one cause and one remedy, and returns the
// exit code that it stands for.
func Report(w io.Writer, err error) int {
	var st Status
	if err == nil || errors.As(err, &st) {
		return int(st)
	}
	f := &Fault{Failure, err, "see agent-init status, or run agent-init doctor as root"}
	errors.As(err, &f)
	fmt.Fprintf(w, "agent-init: %s\n", strings.TrimRight(f.Error(), "\n"))
	if f.Remedy != "" {
		fmt.Fprintf(w, "  remedy: %s\n", f.Remedy)
	}
	return f.Code
}

// Warn is one line of cause and one of remedy that stop nothing.
func Warn(w io.Writer, cause, remedy string) {
	fmt.Fprintf(w, "agent-init: warning: %s\n  remedy: %s\n", cause, remedy)
}
