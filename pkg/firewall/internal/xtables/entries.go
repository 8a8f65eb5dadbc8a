package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// From linux/netfilter_ipv4/ip_tables.h and its like for IPv6, whose numbers are
// the same.
const (
	soGetInfo    = 64 // IPT_SO_GET_INFO
	soGetEntries = 65 // IPT_SO_GET_ENTRIES

	getInfoSize    = 84 // struct ipt_getinfo, with the size of the entries at its end
	getEntriesSize = 40 // struct ipt_get_entries, without them
	countersSize   = 16 // struct xt_counters

	maxEntries = 64 << 20 // bytes
)

// xtEntries returns the rules of a table as the kernel has them, in its own form,
// with their counters set to 0. Where iptables can't read a match, its bytes still
// show whether anyone has changed it.
func xtEntries(f plan.Family, table string) (string, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == plan.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	info := make([]byte, getInfoSize)
	copy(info, table)
	if err := getsockopt(fd, level, soGetInfo, info); err != nil {
		return "", err
	}
	size := binary.NativeEndian.Uint32(info[getInfoSize-4:])
	if size > maxEntries {
		return "", fmt.Errorf("%d bytes of rules", size)
	}
	b := make([]byte, getEntriesSize+int(size))
	copy(b, table)
	binary.NativeEndian.PutUint32(b[32:], size)
	if err := getsockopt(fd, level, soGetEntries, b); err != nil {
		return "", err // EAGAIN if the table has changed in between
	}
	return withoutCounters(f, b[getEntriesSize:])
}

// withoutCounters clears the counters of each struct ipt_entry, or ip6t_entry.
func withoutCounters(f plan.Family, b []byte) (string, error) {
	next, counters := 90, 96 // offsets in ipt_entry
	if f == plan.IPv6 {
		next, counters = 142, 152
	}
	for at := 0; at < len(b); {
		if len(b)-at < counters+countersSize {
			return "", errors.New("a rule is cut short")
		}
		clear(b[at+counters : at+counters+countersSize])
		n := int(binary.NativeEndian.Uint16(b[at+next:]))
		if n < counters+countersSize {
			return "", fmt.Errorf("a rule has %d bytes", n)
		}
		at += n
	}
	return string(b), nil
}

func getsockopt(fd, level, name int, b []byte) error {
	n := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	if int(n) != len(b) {
		return fmt.Errorf("getsockopt returned %d bytes, not %d", n, len(b))
	}
	return nil
}
