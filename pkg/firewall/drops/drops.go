// Package drops reads the log of refused packets. It needs no right, and changes nothing.
package drops

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// The prefixes of rules whose packets are not the agent's refused ones.
const (
	InboundPrefix  = plan.InboundPrefix  // of a connection from outside that was refused
	ObservedPrefix = plan.ObservedPrefix // of what was let out, see firewall.Config.Observe
)

// Drop is one packet that was refused.
type Drop struct {
	Time     time.Time // when it was refused, or else when it was read
	UID      int64     // of the sender; -1 if not known
	Proto    uint8     // IP protocol number
	Src, Dst netip.AddrPort
	ICMPType uint8  // of ICMP and ICMPv6 only
	Len      int    // of the packet on the wire, bytes, as its header claims
	Prefix   string // of the rule that logged it
}

// Read calls fn for each refused packet until ctx ends, and then returns
// nil. Packets that came faster than fn took them are lost silently. f stays
// open; only one ReadDrops may read it at a time.
func Read(ctx context.Context, f *os.File, fn func(Drop)) error {
	mine, err := pollable(f)
	if err != nil {
		return fmt.Errorf("read dropped packets: %w", err)
	}
	defer mine.Close()
	stop := context.AfterFunc(ctx, func() { mine.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 1<<17)
	for {
		n, err := mine.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // some were lost; the socket is fine
			continue
		case err != nil:
			return fmt.Errorf("read dropped packets: %w", err)
		}
		parseDrops(buf[:n], func(d Drop) {
			if d.Time.IsZero() {
				d.Time = time.Now()
			}
			fn(d)
		})
	}
}

// pollable returns a duplicate of f whose reads can be interrupted, whatever
// way f came into this process.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
