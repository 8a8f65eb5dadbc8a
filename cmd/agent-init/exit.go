package main

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
	exitOK        = 0
	exitFailure   = 1   // status: no; and what has no code of its own
	exitUsage     = 64  // EX_USAGE
	exitSelfTest  = 70  // EX_SOFTWARE: the confinement could not be proved
	exitRules     = 71  // EX_OSERR: the kernel refused the rules
	exitPrivilege = 77  // EX_NOPERM: a capability is missing
	exitPolicy    = 78  // EX_CONFIG: bad policy or allowlist
	exitNoExec    = 126 // the command is not executable
	exitNotFound  = 127 // the command was not found
)

// fault is an error that ends a command: what went wrong, what to do about it,
// and the exit code that tells a script the same.
type fault struct {
	code   int
	cause  error
	remedy string
}

func (f *fault) Error() string { return f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

func faultf(code int, remedy, format string, args ...any) *fault {
	return &fault{code: code, cause: fmt.Errorf(format, args...), remedy: remedy}
}

// faultOf is the fault that err is, or one of its own for what failed while it was
// doing that.
func faultOf(err error, doing string) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	return faultf(exitRules, "start it with --log-level debug, which says more", "%s: %w", doing, err)
}

// status carries the exit status of a command that ran: nothing is printed.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// report writes err for a person, one cause and one remedy, and returns the
// exit code that it stands for.
func report(w io.Writer, err error) int {
	var st status
	var f *fault
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &st):
		return int(st)
	case errors.As(err, &f):
		fmt.Fprintf(w, "agent-init: %s\n", strings.TrimRight(f.Error(), "\n"))
		if f.remedy != "" {
			fmt.Fprintf(w, "  remedy: %s\n", f.remedy)
		}
		return f.code
	default:
		fmt.Fprintf(w, "agent-init: %v\n  remedy: see agent-init status, or run agent-init doctor as root\n", err)
		return exitFailure
	}
}

// exitMeanings says what each exit code of agent-init itself means.
func exitMeanings() [][2]string {
	return [][2]string{
		{"CMD's own", "of run and exec: the exit code of the command; 128+n if signal n ended it"},
		{fmt.Sprint(exitFailure), "status: not confined, or not healthy; and what has no code of its own"},
		{fmt.Sprint(exitUsage), "the command line is wrong"},
		{fmt.Sprint(exitSelfTest), "the self-test failed, and the agent was not started; wait: not proved"},
		{fmt.Sprint(exitRules), "the kernel refused the rules, or this is not the container's own network"},
		{fmt.Sprint(exitPrivilege), "a capability is missing, or this is for root"},
		{fmt.Sprint(exitPolicy), "the policy is wrong, or the agent could write it, or replace agent-init"},
		{fmt.Sprintf("%d, %d", exitNoExec, exitNotFound), "the command can't be executed; was not found"},
	}
}
