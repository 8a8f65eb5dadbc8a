package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall/drops"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// readDrops records what the kernel tells of refused packets, until ctx ends.
func (g *guard) readDrops(ctx context.Context, record audit.Recorder) {
	err := drops.Read(ctx, os.NewFile(fdDrops, "drops"), func(d drops.Drop) {
		e := dropEvent(d, g.broker)
		if e.Asker == audit.Agent && !g.probing.tries("", d.Dst.Addr()) {
			g.drops.Add(1)
		}
		record(e)
	})
	if ctx.Err() == nil {
		// Blind, but no less sealed: the kernel goes on refusing.
		g.log.Error("refusals are no longer logged", "error", err)
	}
}

// dropEvent names no process: the socket of a refused connection is gone by then. A uid of 0 is nobody's.
func dropEvent(d drops.Drop, brokerUID uint32) audit.Event {
	e := audit.Event{
		Kind: audit.Drop, Verdict: audit.Deny, IP: d.Dst.Addr().String(), Port: d.Dst.Port(),
		Proto: cmp.Or(protocols[d.Proto], strconv.Itoa(int(d.Proto))), Reason: "no entry allows this address and port",
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
		if uid != 0 && uid == brokerUID {
			e.Asker, e.Reason = audit.ByBroker, "no route leads there"
		}
	}
	return e
}

// protocols are the IP protocols that people know by a name (IANA protocol numbers).
var protocols = map[uint8]string{
	unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmpv6",
}

// finder is the guard's audit.Finder. Nothing is decided by what it finds. It finds the
// socket by itself; the keeper looks for the process.
type finder struct {
	sockets *sockowner.Finder
	ask     func(context.Context, wire.Message) (wire.Message, error)
	turn    chan struct{} // of asking the keeper, which looks for one at a time

	mu     sync.Mutex
	rest   time.Time // until then the keeper is not asked
	recent map[uint32]foundProcess
}

type foundProcess struct {
	by    audit.Process
	until time.Time
}

const (
	findTime    = 20 * time.Millisecond // that the keeper may take
	findRest    = time.Second           // after a keeper that took longer
	recentFor   = 5 * time.Second
	maxFindings = 128
)

// within lets it find as often as limit says, whatever the agent does: there is no Finder until then.
func (f *finder) within(limit *budget.Pace) func() audit.Finder {
	return func() audit.Finder {
		if !limit.Take(time.Now()) {
			return nil
		}
		return f.find
	}
}

// orNobody finds nobody where there is no Finder.
func orNobody(leave func() audit.Finder) audit.Finder {
	return func(network string, local, remote netip.AddrPort) *audit.Process {
		find := leave()
		if find == nil {
			return nil
		}
		return find(network, local, remote)
	}
}

func (f *finder) find(network string, local, remote netip.AddrPort) *audit.Process {
	now := time.Now()
	proto := uint8(unix.IPPROTO_TCP)
	if network == "udp" {
		proto = unix.IPPROTO_UDP
	}
	s, err := f.sockets.Find(proto, local, remote)
	if err != nil {
		return nil
	}
	p := audit.Process{UID: s.UID}
	f.mu.Lock()
	known, ok := f.recent[s.Inode]
	resting := now.Before(f.rest)
	f.mu.Unlock()
	switch {
	case ok && now.Before(known.until):
		return &known.by
	case resting:
		return &p
	}
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-time.After(findTime):
		return &p
	}
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	r, err := f.ask(ctx, wire.Message{Op: wire.OpOwner, Arg: uint64(s.Inode)})
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.rest = now.Add(findRest)
	case err == nil && !r.Err:
		p.PID, p.Comm = int(r.PID), r.Text
		if len(f.recent) >= maxFindings {
			clear(f.recent)
		}
		f.recent[s.Inode] = foundProcess{by: p, until: now.Add(recentFor)}
	}
	return &p
}
