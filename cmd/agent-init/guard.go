package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/gateway"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// The descriptors that the guard inherits. Number 3 is what started it.
const (
	fdConfig = 4 + iota
	fdChannel
	fdAudit
	fdDrops
	fdRequests  // where the agent's requests come in
	fdEdition   // of the keeper's book
	fdDiag      // where sockets are looked up, or nothing of use
	fdListeners // and on: socketsPerFamily for each address family
)

// guardConfig is all that the guard is told, through a memfd: it opens no file
// and reads no variable.
type guardConfig struct {
	Bundle    *policy.Bundle   `json:"bundle"`
	Servers   []netip.AddrPort `json:"servers"` // of resolv.conf
	Search    []string         `json:"search"`
	Ephemeral [2]uint16        `json:"ephemeral"` // first and last port that sockets get by themselves
	Families  int              `json:"families"`  // that there are listeners for
	LogLevel  slog.Level       `json:"log_level"`
	AgentUID  uint32           `json:"agent_uid"`
	Monitor   bool             `json:"monitor"`

	// Reduced says that the kernel can't tell what may pass: the gate takes what
	// it knows by address only as well, and there is no log of refused packets.
	Reduced bool `json:"reduced,omitempty"`
}

func guardCommand() command {
	return command{
		name: "guard", hidden: true,
		summary: "the part that reads the network, without a privilege (started by agent-init itself)",
		run: func(ctx context.Context, e environment, _ *flag.FlagSet, args []string) error {
			// Without the descriptors there is nothing to do: a person
			// or the agent has typed the command.
			f := os.NewFile(fdConfig, "config")
			var c guardConfig
			if err := json.NewDecoder(io.LimitReader(f, maxBundle)).Decode(&c); err != nil {
				return faultf(exitUsage, "use agent-init run, up or sidecar", "the guard is started by agent-init itself")
			}
			f.Close()
			return runGuard(ctx, c)
		},
	}
}

// maxBundle bounds the policy files together, in bytes of JSON.
const maxBundle = 256 << 20

// smallHeap is the GC percentage of processes with a few MiB of live data: they
// don't need a heap that doubles.
const smallHeap = 50

// guard is the process that reads what the network and the agent send: it
// answers DNS and reads the kernel's refusals. It holds no capability; to open
// an address it must ask the keeper.
type guard struct {
	policy   atomic.Pointer[policy.Policy]
	channel  *channel
	resolver *resolver.Server
	gate     *gateway.Server
	servers  []netip.AddrPort // of resolv.conf
	known    *known
	flush    func() // what is held back of the log
	log      *slog.Logger

	drops, leases, leaseNanos atomic.Uint64

	mu      sync.Mutex
	stop    context.CancelFunc // of the resolving ahead for the present policy
	ahead   ahead              // how far that goes
	nextID  uint32
	waiting map[uint32]chan message
}

func runGuard(ctx context.Context, c guardConfig) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the guard undumpable: %w", err)
	}
	// Until the policy is read, collecting only takes time.
	debug.SetGCPercent(-1)

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	g := &guard{log: log, servers: c.Servers, waiting: map[uint32]chan message{}}
	p, err := policy.Parse(c.Bundle, presets())
	if err != nil {
		return fmt.Errorf("parse the policy: %w", err)
	}
	g.policy.Store(p)
	c.Bundle = nil
	debug.SetGCPercent(smallHeap)
	conn, err := openPair(os.NewFile(fdChannel, "channel"))
	if err != nil {
		return err
	}
	g.channel = openChannel(conn)
	e, err := openEdition(os.NewFile(fdEdition, "edition"))
	if err != nil {
		return err
	}
	g.known = newKnown(e)
	sink, err := openAuditSink(os.NewFile(fdAudit, "audit"))
	if err != nil {
		return err
	}
	limiter := audit.NewLimiter(sink.record)
	defer limiter.Flush()
	g.flush = limiter.Flush
	go limiter.Run(ctx)
	in, err := inheritListeners(c.Families)
	if err != nil {
		return err
	}
	find := audit.Nobody
	if !c.Reduced {
		find = newFinder(sockowner.NewFinder(os.NewFile(fdDiag, "sock_diag")), g.ask).find
	}
	rc := resolver.Config{
		Policy: g.policy.Load, Search: c.Search, Ephemeral: c.Ephemeral, Admit: g.admit, Record: limiter.Record, Find: find, Log: log, Monitor: c.Monitor,
		Stream: c.Reduced,
	}
	if rc.Upstreams, err = upstreams(p, c.Servers); err != nil {
		return err
	}
	if g.resolver, err = resolver.New(rc); err != nil {
		return err
	}
	gc := gateway.Config{
		Policy: g.policy.Load, Held: g.held, Monitor: c.Monitor, Record: limiter.Record, Find: find, Log: log, Limits: gateway.Limits{Connections: maxRelays},
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		gc.Limits.Connections = relays(files.Cur)
	}
	if c.Reduced {
		gc.Direct = g.direct
	}
	if g.gate, err = gateway.New(gc); err != nil {
		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(g.serveChannel(ctx)) }()
	go func() { cancel(g.resolver.Serve(ctx, in.udp, in.tcp)) }()
	go func() { cancel(g.gate.Serve(ctx, in.gate)) }()
	go func() {
		if c.Reduced {
			return
		}
		err := firewall.ReadDrops(ctx, os.NewFile(fdDrops, "drops"), func(d firewall.Drop) { g.drops.Add(1); limiter.Record(dropEvent(d)) })
		if ctx.Err() == nil {
			// Blind, but no less sealed: the kernel goes on refusing.
			log.Error("refusals are no longer logged", "error", err)
		}
	}()
	requests, err := g.openRequests(c.AgentUID)
	if err != nil {
		return err
	}
	go func() { cancel(requests(ctx)) }()
	if err := g.channel.send(message{op: opReady}, nil); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	spawnThreads()
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, errKeeperGone) {
		return cause
	}
	return nil
}

// errKeeperGone ends the guard in peace: nobody could open anything for it.
var errKeeperGone = errors.New("the keeper is gone")

func presets() fs.FS { return allowlist.Files }

// prefetch begins to resolve the names that the policy spells out, as far as
// the keeper lets it, and leaves those of an earlier policy.
func (g *guard) prefetch(ctx context.Context, p *policy.Policy, a ahead) {
	ctx, stop := context.WithCancel(ctx)
	g.mu.Lock()
	g.ahead = a
	if g.stop != nil {
		g.stop()
	}
	g.stop = stop
	g.mu.Unlock()
	if a != aheadNone {
		go g.resolveAhead(ctx, p, a)
	}
}

// fewNames are resolved at once: they don't slow the start down.
const fewNames = 100

// resolveAhead takes the required names first, so that the agent finds them
// leased.
func (g *guard) resolveAhead(ctx context.Context, p *policy.Policy, a ahead) {
	var first, rest []string
	for _, r := range p.Names() {
		if r.Required {
			first = append(first, r.Name)
		} else {
			rest = append(rest, r.Name)
		}
	}
	if a == aheadFirst && len(rest) > fewNames {
		rest = nil
	}
	for _, names := range [][]string{first, rest} {
		if err := g.resolver.Prefetch(ctx, names); err != nil && ctx.Err() == nil {
			g.log.Info("resolving ahead", "error", err)
		}
	}
}

// admit asks the keeper to lease the addresses and waits for its word.
func (g *guard) admit(ctx context.Context, name string, addrs []netip.Addr, ttl time.Duration) ([]netip.Addr, error) {
	defer func(begun time.Time) { g.leases.Add(1); g.leaseNanos.Add(uint64(time.Since(begun))) }(time.Now())
	var admitted []netip.Addr
	asked := time.Now()
	for len(addrs) > 0 {
		n := min(len(addrs), maxLeaseAddrs)
		reply, err := g.ask(ctx, message{op: opLease, name: name, addrs: addrs[:n], ttl: ttl})
		if err != nil {
			return nil, fmt.Errorf("lease: %w", err)
		}
		if reply.err {
			return nil, errors.New("the keeper could not lease the address")
		}
		for _, a := range reply.addrs {
			g.noteLease(name, a, reply.edition, asked.Add(reply.ttl))
		}
		admitted = append(admitted, reply.addrs...)
		addrs = addrs[n:]
	}
	return admitted, nil
}

// noteLease remembers a lease that was given, for the ports of the name gate that
// the keeper has booked with it.
func (g *guard) noteLease(name string, a netip.Addr, edition uint64, until time.Time) {
	for _, p := range g.policy.Load().Admit(name, a) {
		if p == http || p == https {
			g.known.note(name, netip.AddrPortFrom(a, p.Number), edition, until)
		}
	}
}

// held says whether addr is leased to this very name: it asks the keeper, unless
// it is known for certain.
func (g *guard) held(ctx context.Context, name string, addr netip.AddrPort) (bool, error) {
	if g.known.holds(name, addr) {
		return true, nil
	}
	asked := time.Now()
	reply, err := g.ask(ctx, message{op: opHeld, name: name, addrs: []netip.Addr{addr.Addr()}, port: addr.Port()})
	if err != nil {
		return false, fmt.Errorf("ask for the lease: %w", err)
	}
	if reply.err {
		return false, nil
	}
	g.known.note(name, addr, reply.edition, asked.Add(reply.ttl))
	return true, nil
}

// direct asks the keeper whether addr may be connected to unseen, and if that is
// for a name's sake, whose.
func (g *guard) direct(ctx context.Context, addr netip.AddrPort) (string, bool, error) {
	reply, err := g.ask(ctx, message{op: opDirect, addrs: []netip.Addr{addr.Addr()}, port: addr.Port()})
	if err != nil {
		return "", false, fmt.Errorf("ask for the address: %w", err)
	}
	return reply.name, !reply.err, nil
}

func (g *guard) ask(ctx context.Context, m message) (message, error) {
	answer := make(chan message, 1)
	g.mu.Lock()
	g.nextID++
	m.id = g.nextID
	g.waiting[m.id] = answer
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.waiting, m.id)
		g.mu.Unlock()
	}()
	if err := g.channel.send(m, nil); err != nil {
		return message{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

const askTimeout = 5 * time.Second

// serveChannel handles what the keeper sends, until the keeper goes.
func (g *guard) serveChannel(ctx context.Context) error {
	for {
		m, file, err := g.channel.receive()
		if errors.Is(err, errBadMessage) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errKeeperGone, err)
		}
		switch m.op {
		case opLease, opHeld, opDirect, opOwner, opRequest:
			g.mu.Lock()
			answer := g.waiting[m.id]
			delete(g.waiting, m.id)
			g.mu.Unlock()
			if answer != nil {
				answer <- m
			}
		case opPing:
			err = g.channel.send(message{op: opPong, id: m.id, stats: g.stats()}, nil)
		case opFlush:
			g.flush()
			err = g.channel.send(message{op: opFlush, id: m.id}, nil)
		case opAhead:
			g.prefetch(ctx, g.policy.Load(), ahead(m.id))
		case opPolicy:
			err = g.channel.send(message{op: opPolicy, id: m.id, err: g.adopt(ctx, file) != nil}, nil)
		}
		if file != nil {
			file.Close()
		}
		if err != nil {
			return err
		}
	}
}

func (g *guard) adopt(ctx context.Context, file *os.File) error {
	if file == nil {
		return errors.New("no policy in the message")
	}
	var b policy.Bundle
	if err := json.NewDecoder(io.LimitReader(file, maxBundle)).Decode(&b); err != nil {
		return err
	}
	p, err := policy.Parse(&b, presets())
	if err != nil {
		return err
	}
	ups, err := upstreams(p, g.servers)
	if err != nil {
		return err
	}
	if err := g.resolver.SetUpstreams(ups); err != nil {
		return err
	}
	g.policy.Store(p)
	g.gate.Recheck()
	g.mu.Lock()
	a := g.ahead
	g.mu.Unlock()
	g.prefetch(ctx, p, a)
	return nil
}

func (g *guard) stats() guardStats {
	s, t := g.resolver.Stats(), g.gate.Stats()
	return guardStats{
		Queries: s.Queries, Allowed: s.Allowed, Denied: s.Denied, Cached: s.Cached, Asked: s.Asked, Failed: s.Failed, Stripped: s.Stripped,
		Relays: uint64(t.Open), Passed: t.Allowed, Refused: t.Refused,
		Drops: g.drops.Load(), Leases: g.leases.Load(), LeaseNanos: g.leaseNanos.Load(), AskedNanos: s.AskedNanos,
	}
}

// dropEvent names no process: when the kernel's word arrives, the socket of a refused
// connection is no longer there to be found.
func dropEvent(d firewall.Drop) audit.Event {
	e := audit.Event{
		Kind: audit.Drop, Verdict: audit.Deny, IP: d.Dst.Addr().String(), Port: d.Dst.Port(),
		Proto: protocolName(d.Proto), Reason: "no entry allows this address and port",
	}
	if d.Prefix == firewall.ObservedPrefix {
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

// inherited are the keeper's listening sockets.
type inherited struct {
	udp  []net.PacketConn
	tcp  []net.Listener
	gate []net.Listener
}

func inheritListeners(families int) (in inherited, err error) {
	for i := range families {
		fd := uintptr(fdListeners + socketsPerFamily*i)
		u, err := inherit(fd, net.FilePacketConn)
		if err != nil {
			return in, err
		}
		t, err := inherit(fd+1, net.FileListener)
		if err != nil {
			return in, err
		}
		g, err := inherit(fd+2, net.FileListener)
		if err != nil {
			return in, err
		}
		in.udp, in.tcp, in.gate = append(in.udp, u), append(in.tcp, t), append(in.gate, g)
	}
	return in, nil
}

func inherit[T any](fd uintptr, open func(*os.File) (T, error)) (T, error) {
	f := os.NewFile(fd, "inherited")
	defer f.Close()
	v, err := open(f)
	if err != nil {
		return v, fmt.Errorf("inherit socket %d: %w", fd, err)
	}
	return v, nil
}
