package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// outcome is what a probe found.
type outcome struct{ got, detail string }

func blocked(how string) outcome   { return outcome{selftest.Blocked, how} }
func reachable(how string) outcome { return outcome{selftest.Reachable, how} }
func unknown(err error) outcome    { return outcome{selftest.Unknown, err.Error()} }

func answered(format string, a ...any) outcome {
	return reachable(fmt.Sprintf("answered "+format, a...))
}

// noAnswer is not as good as a refusal, which comes within milliseconds.
const noAnswer = "no answer (timeout)"

// refusal reads the error of a probe that is meant to fail. Only errors that are
// known to mean a wall count as one: running out of file descriptors does not.
func refusal(err error) outcome {
	if how, ok := refusals(err); ok {
		return blocked(how)
	}
	return unknown(err)
}

func refusals(err error) (how string, ok bool) {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return noAnswer, timedOut(err)
	}
	switch errno {
	case unix.ECONNREFUSED:
		return "refused", true
	case unix.EHOSTUNREACH: // what ICMP "administratively prohibited" becomes, see icmp(7)
		return "unreachable", true
	case unix.ENETUNREACH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.ENETDOWN, unix.EHOSTDOWN,
		unix.EINVAL: // of a blackhole route
		return "no route", true
	case unix.EACCES, unix.EPERM:
		return "not permitted", true
	case unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT:
		return "not supported", true
	case unix.ETIMEDOUT:
		return noAnswer, true
	}
	return "", false
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &ne) && ne.Timeout()
}

// settle voids what a probe concluded after the whole run was given up: its
// time-outs are then not the network's.
func settle(run context.Context, o outcome) outcome {
	if err := context.Cause(run); err != nil && o.got != selftest.Reachable {
		return unknown(fmt.Errorf("interrupted: %w", err))
	}
	return o
}
