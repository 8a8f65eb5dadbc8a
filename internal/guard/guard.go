// Package guard is the process that reads what the network and the agent send, and has no privilege.
package guard

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/peers"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/gateway"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
	"github.com/agent-init/agent-init/pkg/resolver"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// guard answers DNS, serves the name gate and reads the kernel's refusals. It holds no
// capability; to open an address it must ask the keeper.
type guard struct {
	policy   atomic.Pointer[policy.Policy]
	channel  *wire.Channel
	asks     *peers.Asks
	rooted   bool // the certificate authorities are read at the start
	resolver *resolver.Server
	health   resolver.Health // of its servers
	routes   routes          // the hosts of the broker's

	gate    *gateway.Server
	broker  uint32 // its uid; 0: there is none
	known   *known
	holds   *holds
	agent   uint32 // its uid
	probing probing

	tunnelled func() error // receives connections by the upstream proxy; nil: there is no broker
	log       *slog.Logger

	drops, leases, leaseNanos atomic.Uint64

	mu    sync.Mutex
	stop  context.CancelFunc // of the resolving ahead for the present policy
	ahead wire.Ahead         // how far that goes
}

// The descriptors that the guard inherits behind its channel, in the keeper's order.
const (
	fdAudit = stage.FDFiles + 1 + iota
	fdDrops
	fdRequests  // where the agent's requests come in
	fdEdition   // of the keeper's book
	fdDiag      // where sockets are looked up, or nothing of use
	fdHand      // where connections are handed over to the broker, or nothing of use
	fdTunnels   // where the broker is asked for connections by the upstream proxy, or nothing of use
	fdListeners // and on: stage.SocketsPerFamily for each address family
)

// Run reads what it is told, and serves until the keeper goes.
func Run(ctx context.Context) error {
	var c stage.GuardConfig
	conn, err := child.Told(&c, fault.New(fault.Usage, "use agent-init run, up or sidecar", "the guard is started by agent-init itself"))
	if err != nil {
		return err
	}
	g, err := newGuard(c, conn)
	if err != nil {
		return err
	}
	c.Bundle = nil // it may be long, and was read
	report, err := child.Reports(os.NewFile(fdAudit, "audit"))
	if err != nil {
		return err
	}
	limiter := audit.NewLimiter(report)
	defer limiter.Flush()
	go limiter.Run(ctx)
	in, err := inheritListeners(c.Families)
	if err != nil {
		return err
	}
	record := func(e audit.Event) { limiter.Record(g.probing.mark(e)) }
	if err := g.makeServers(ctx, c, record); err != nil {
		return err
	}
	requests, err := g.openRequests(c.AgentUID)
	if err != nil {
		return err
	}

	if err := g.confine(c.Reduced); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(g.serveChannel(ctx)) }()
	go func() { cancel(g.resolver.Serve(ctx, in.udp, in.tcp)) }()
	go func() { cancel(g.gate.Serve(ctx, in.gate)) }()
	go func() { cancel(requests(ctx)) }()
	if g.tunnelled != nil {
		go func() { cancel(g.tunnelled()) }()
	}
	if !c.Reduced {
		go g.readDrops(ctx, record)
	}
	if err := g.channel.Send(wire.Message{Op: wire.OpReady}, nil); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	return child.Serve(ctx)
}

func newGuard(c stage.GuardConfig, conn *net.UnixConn) (*guard, error) {
	g := &guard{
		log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel})),
		broker: c.BrokerUID, agent: c.AgentUID, holds: newHolds(),
	}
	p, err := policy.Parse(c.Bundle, allowlist.Files)
	if err != nil {
		return nil, fmt.Errorf("parse the policy: %w", err)
	}
	g.policy.Store(p)
	g.channel = wire.Open(conn, wire.MaxText)
	g.asks = peers.NewAsks(g.channel)
	e, err := wire.OpenEdition(os.NewFile(fdEdition, "edition"))
	g.known = newKnown(e)
	return g, err
}

// makeServers makes the resolver and the name gate. Neither serves yet.
func (g *guard) makeServers(ctx context.Context, c stage.GuardConfig, record audit.Recorder) error {
	nobody := func() audit.Finder { return nil }
	find, allowed, sockets := audit.Nobody, nobody, sockowner.NewFinder(os.NewFile(fdDiag, "sock_diag"))
	if !c.Reduced && !c.Elsewhere {
		f := &finder{sockets: sockets, ask: g.asks.Ask, turn: make(chan struct{}, 1), recent: map[uint32]foundProcess{}}
		find = orNobody(f.within(&budget.Pace{Burst: 100, Every: 20 * time.Millisecond}))
		allowed = f.within(&budget.Pace{Burst: 50, Every: 100 * time.Millisecond}) // must not use up the other
	}
	var believe func(policy.Upstream) error
	if c.Shared {
		believe = believer(sockets, c.Engine)
	}
	ups, err := upstream.Of(g.policy.Load())
	if err != nil {
		return err
	}
	g.rooted = overTLS(ups)
	rc := resolver.Config{
		Policy: g.policy.Load, Upstreams: ups, Ephemeral: c.Ephemeral, Admit: g.admitFor(0), Record: record, Find: find, FindAllowed: orNobody(allowed), Log: g.log,
		Aside:   func(name string) bool { return g.probing.tries(name, netip.Addr{}) },
		Monitor: c.Monitor, Stream: c.Reduced, Believe: believe, Spend: g.spend, Again: c.Again, Own: c.Own, Health: &g.health,
	}
	if !c.Monitor { // which answers for every name
		rc.Hold = func(name string, who func() *audit.Process) <-chan struct{} { return g.hold(ctx, name, who) }
	}
	if g.resolver, err = resolver.New(rc); err != nil {
		return err
	}
	g.resolveRoutes(rc)
	if err := g.routes.adopt(g.policy.Load(), ups); err != nil {
		return err
	}
	gc := gateway.Config{
		Policy: g.policy.Load, LeasedTo: g.leasedTo, Beside: g.beside, Monitor: c.Monitor, Record: record, Find: find, FindAllowed: allowed, Aside: g.probing.tries,
		Connections: maxRelays, Log: g.log, Own: c.Own, Locate: g.locate,
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		gc.Connections = relays(files.Cur)
	}
	if c.Reduced {
		gc.Direct = g.direct
	}
	if err := g.toBroker(c, &gc); err != nil {
		return err
	}
	g.gate, err = gateway.New(gc)
	return err
}

func (g *guard) stats() wire.Stats {
	s, t, h := g.resolver.Stats(), g.gate.Stats(), g.health.Look(time.Now())
	return wire.Stats{
		Answered: nanos(h.Answered), Silent: nanos(h.Silent), LatelyAsked: h.Asked, LatelyFailed: h.Failed,
		Queries: s.Queries.Load(), Allowed: s.Allowed.Load(), Denied: s.Denied.Load(), Cached: s.Cached.Load(), Asked: s.Asked.Load(),
		Failed: s.Failed.Load(), Stripped: s.Stripped.Load(), AskedNanos: s.AskedNanos.Load(),
		Relays: uint64(t.Open), Passed: t.Allowed, Refused: t.Refused,
		Drops: g.drops.Load(), Leases: g.leases.Load(), LeaseNanos: g.leaseNanos.Load(),
	}
}

// nanos is t since 1970, 0 if it is none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

type inherited struct {
	udp  []net.PacketConn
	tcp  []net.Listener
	gate []net.Listener
}

func inheritListeners(families int) (in inherited, err error) {
	for i := range families {
		fd := uintptr(fdListeners + stage.SocketsPerFamily*i)
		u, err1 := wire.Inherit(fd, net.FilePacketConn)
		t, err2 := wire.Inherit(fd+1, net.FileListener)
		g, err3 := wire.Inherit(fd+2, net.FileListener)
		if err := cmp.Or(err1, err2, err3); err != nil {
			return in, err
		}
		in.udp, in.tcp, in.gate = append(in.udp, u), append(in.tcp, t), append(in.gate, g)
	}
	return in, nil
}

// maxRelays are the connections through the name gate at once.
const maxRelays = 8192

// relays is maxRelays, or fewer in a container that allows a process few descriptors.
// Each takes two. Some are left for DNS, whose clients and questions take one each.
func relays(descriptors uint64) int {
	const rest = 640
	return int(min(maxRelays, max(1, descriptors/8, (max(descriptors, rest)-rest)/2)))
}

// confine has the guard give up, before it reads anything hostile, files by name, programs, other processes, and
// sockets of its own but TCP and UDP. What it will read of files is read first.
func (g *guard) confine(reduced bool) error {
	_ = time.Now().Local().String() // the time zone, for what it says
	if g.rooted {
		if _, err := x509.SystemCertPool(); err != nil { // which is kept for the process
			return fmt.Errorf("read the certificate authorities: %w", err)
		}
	}
	if reduced { // gVisor has filters of its own around every process
		return nil
	}
	return drop.Serve()
}

// errRootless has the keeper start another guard, which reads them at its start.
var errRootless = errors.New("the certificate authorities can't be read any more")

func overTLS(list []policy.Upstream) bool {
	return slices.ContainsFunc(list, func(u policy.Upstream) bool { return u.TLSName != "" })
}

var errOtherEngine = errors.New("the engine's DNS server has ended since agent-init was started: start this container again to take the new one")

// believer checks answers in a sidecar. A socket that is still there after an answer had
// the port all the while, so that nobody else can have sent it.
func believer(find *sockowner.Finder, engine []sockowner.Bound) func(policy.Upstream) error {
	return func(u policy.Upstream) error {
		if u.Addr.Addr().Unmap() != policy.EngineDNS() {
			return nil
		}
		if len(engine) == 0 {
			return errOtherEngine
		}
		for _, b := range engine {
			there, err := find.Still(b)
			if err != nil {
				return fmt.Errorf("look for the engine's DNS server: %w", err)
			}
			if !there {
				return errOtherEngine
			}
		}
		return nil
	}
}
