// Package drops reads the log of refused packets. It needs no right, and changes nothing.
package drops

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
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
	Prefix   string // of the rule that logged it
}

// Read calls fn for each refused packet until ctx ends, and then returns nil. Packets that came faster than fn took
// them are lost silently. f stays open; only one ReadDrops may read it at a time.
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

// pollable returns a duplicate of f whose reads can be interrupted, whatever way f came into this process.
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

// Attributes of a packet that NFLOG tells of, from nfnetlink_log.h.
const (
	nfulnlPacket = 0 // NFULNL_MSG_PACKET

	nfulaTimestamp = 3
	nfulaPayload   = 9
	nfulaPrefix    = 10
	nfulaUID       = 11
)

// parseDrops calls fn for each packet in a datagram of netlink messages, whose
// payloads are the agent's to choose. What doesn't parse is skipped.
func parseDrops(b []byte, fn func(Drop)) {
	_ = nfnetlink.EachMessage(b, func(typ uint16, data []byte) error {
		if typ == unix.NFNL_SUBSYS_ULOG<<8|nfulnlPacket && len(data) >= 4 {
			if d, ok := parseDrop(data[4:]); ok {
				fn(d)
			}
		}
		return nil
	})
}

func parseDrop(b []byte) (d Drop, ok bool) {
	d.UID = -1
	_ = nfnetlink.EachAttr(b, func(typ uint16, v []byte) error {
		switch {
		case typ == nfulaTimestamp && len(v) == 16:
			d.Time = time.Unix(int64(binary.BigEndian.Uint64(v)), int64(binary.BigEndian.Uint64(v[8:]))*1000)
		case typ == nfulaPrefix:
			d.Prefix = nfnetlink.Attrs{typ: v}.String(typ)
		case typ == nfulaUID && len(v) == 4:
			d.UID = int64(binary.BigEndian.Uint32(v))
		case typ == nfulaPayload:
			var p Drop
			if p, ok = ParsePacket(v); ok {
				p.Time, p.Prefix, p.UID = d.Time, d.Prefix, d.UID
				d = p
			}
		}
		return nil
	})
	return d, ok
}

// ParsePacket reads the headers of an IP packet, of which b may be only the beginning.
func ParsePacket(b []byte) (Drop, bool) {
	if len(b) == 0 {
		return Drop{}, false
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b)
	case 6:
		return parseIPv6(b)
	}
	return Drop{}, false
}

func parseIPv4(b []byte) (Drop, bool) {
	head := int(b[0]&0xf) * 4
	if head < 20 || len(b) < 20 {
		return Drop{}, false
	}
	d := Drop{UID: -1, Proto: b[9]}
	src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	first := binary.BigEndian.Uint16(b[6:])&0x1fff == 0 // of the fragments
	d.transport(src, dst, b[min(head, len(b)):], first)
	return d, true
}

func parseIPv6(b []byte) (Drop, bool) {
	if len(b) < 40 {
		return Drop{}, false
	}
	d := Drop{UID: -1}
	src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next, rest, first := b[6], b[40:], true
	// Extension headers that may precede the transport's, RFC 8200 section 4.
	for len(rest) >= 8 {
		size := 0
		switch next {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			size = 8 + int(rest[1])*8
		case unix.IPPROTO_FRAGMENT:
			size = 8
			first = first && binary.BigEndian.Uint16(rest[2:])&^7 == 0
		}
		if size == 0 {
			break
		}
		next, rest = rest[0], rest[min(size, len(rest)):]
	}
	d.Proto = next
	d.transport(src, dst, rest, first)
	return d, true
}

// transport fills in the addresses and, where the transport's header is there and has some, the ports.
func (d *Drop) transport(src, dst netip.Addr, b []byte, first bool) {
	var sport, dport uint16
	switch d.Proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP:
		if first && len(b) >= 4 {
			sport, dport = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
	}
	d.Src, d.Dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
}
