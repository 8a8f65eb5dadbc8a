package firewall

import (
	"context"
	"net/netip"
	"os"
	"time"
)

// Drop is one packet that was refused.
type Drop struct {
	Time     time.Time
	UID      int64 // of the sender; -1 if not known
	Proto    uint8 // IP protocol number
	Src, Dst netip.AddrPort
	ICMPType uint8  // of ICMP and ICMPv6 only
	Len      int    // of the packet on the wire, bytes
	Prefix   string // of the rule that logged it
}

// OpenDropLog opens the socket that gets what plans with this DropGroup
// refuse. It needs NET_ADMIN; the file can be passed to a process that has
// no capability, to be read there by ReadDrops.
func OpenDropLog(group uint16) (*os.File, error) { return nil, ErrUnsupported }

// ReadDrops calls fn for each refused packet until ctx ends, and then returns
// nil. Packets that came faster than fn took them are lost silently.
func ReadDrops(ctx context.Context, f *os.File, fn func(Drop)) error { return ErrUnsupported }
