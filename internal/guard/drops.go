package guard

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall/drops"
)

// readDrops records what the kernel tells of refused packets, until ctx ends.
func (g *guard) readDrops(ctx context.Context, record audit.Recorder) {
	err := drops.Read(ctx, os.NewFile(fdDrops, "drops"), func(d drops.Drop) {
		if d.Prefix != drops.InboundPrefix && !g.probing.triesAddr(d.Dst.Addr()) {
			g.drops.Add(1)
		}
		record(dropEvent(d))
	})
	if ctx.Err() == nil {
		// Blind, but no less sealed: the kernel goes on refusing.
		g.log.Error("refusals are no longer logged", "error", err)
	}
}

// dropEvent names no process: when the kernel's word arrives, the socket of a refused
// connection is no longer there to be found.
func dropEvent(d drops.Drop) audit.Event {
	e := audit.Event{
		Kind: audit.Drop, Verdict: audit.Deny, IP: d.Dst.Addr().String(), Port: d.Dst.Port(),
		Proto: protocolName(d.Proto), Reason: "no entry allows this address and port",
	}
	if d.Prefix == drops.InboundPrefix {
		e.Asker, e.IP, e.Reason = audit.ByOutside, d.Src.Addr().String(), fmt.Sprintf("a connection from outside; port %d is not in inbound", d.Dst.Port())
		return e
	}
	if d.Prefix == drops.ObservedPrefix {
		e.Verdict, e.Enforce, e.Reason = audit.Allow, audit.Deny, "monitor: "+e.Reason
	}
	if d.UID >= 0 {
		uid := uint32(d.UID)
		e.UID = &uid
	}
	return e
}

// protocolName is the name that a person knows an IP protocol by, else its
// number (IANA protocol numbers).
func protocolName(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "icmpv6"
	}
	return strconv.Itoa(int(p))
}
