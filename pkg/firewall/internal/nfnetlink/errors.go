package nfnetlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrPermission says that the kernel refused for want of a capability.
	ErrPermission = errors.New("the capability NET_ADMIN is missing in this network namespace")

	// ErrRaw says that the xtables backend can't be used for want of a
	// capability: iptables opens raw sockets to speak to the kernel.
	ErrRaw = errors.New("the capability NET_RAW is missing, which iptables needs")

	// ErrUnsupported says that the kernel, or this network namespace, can't
	// hold the plan.
	ErrUnsupported = errors.New("the rules can't be held here")
)

// Explain adds to err, which came from the kernel while doing what, the
// sentinel that a caller can act on. It keeps err for errors.Is.
func Explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrPermission), errors.Is(err, ErrRaw), errors.Is(err, ErrUnsupported):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w: %w", what, ErrPermission, err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ESOCKTNOSUPPORT):
		return fmt.Errorf("%s: %w: the kernel lacks a part of netfilter (nf_tables with inet tables and sets of intervals, Linux 5.6 or later; or ip_set and iptables; and conntrack with netlink): %w", what, ErrUnsupported, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Absent says whether err is that of a kernel without the part of netfilter that
// was spoken to (nfnetlink_rcv_msg).
func Absent(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// Supported returns the error of a kernel that can't be spoken to about
// netfilter: no nf_tables, no ipsets, no conntrack, no log.
func Supported() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return err
	}
	if err == nil {
		unix.Close(fd)
	}
	return nil // any other error comes again, from whoever needs the socket
}
