package keeper

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// guardKeeper keeps one guard running, and owns what it is lent. While there is none, the
// rules stay as they are, so nothing new can be opened.
type guardKeeper struct {
	child
	book      *book
	leases    *leases
	told      stage.GuardConfig // but for what changes
	sockets   *guardSockets
	finding   finding
	overheard overheard
	resolving chan struct{} // has a place for each host that the guard is asked to resolve
	brokers   []*os.File    // the broker's ends of the ways that lead there; none without a broker

	ahead wire.Ahead     // how far guards may resolve ahead; under mu
	given *policy.Bundle // what the present guard was started with; under mu

	pushing sync.Mutex
	has     *policy.Policy // what it probably has, see push; under mu
}

// newGuardKeeper opens what guards are lent. It stays the keeper's while they come and go.
func newGuardKeeper(ctx context.Context, b *base, h hardened) (*guardKeeper, error) {
	g := &guardKeeper{child: child{base: b, who: "the guard", sender: audit.TheGuard}, book: h.book, leases: h.leases, resolving: make(chan struct{}, resolvedAtOnce), has: new(policy.Policy)}
	var err error
	if g.sockets, err = openGuardSockets(ctx, h.inside.hosts()...); err != nil {
		return nil, err
	}
	drops, err := openDrops(h.reduced, dropGroup)
	if err != nil {
		return nil, fault.New(fault.Rules, "use a kernel with nfnetlink_log (CONFIG_NETFILTER_NETLINK_LOG)", "open the log of refused packets: %w", err)
	}
	diag, err := g.finding.open(h.agent)
	if err != nil {
		return nil, err
	}
	g.door, g.hear = &g.sockets.lent, g.overheard.hear
	toBroker := h.broker.uid != 0
	hands, err1 := g.open(toBroker)
	tunnels, err2 := g.open(toBroker)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	g.gets = append([]*os.File{drops, h.doors.requests, h.leases.edition.File, diag, hands, tunnels}, g.sockets.files...)
	g.part = func(s *state.State) partState {
		return partState{&s.Guard.OK, &s.Guard.Fault, &s.Guard.Restarts, &s.Guard.Seen}
	}
	g.spec = stage.Own("guard", h.agent.guardUID, h.group.GID, "guard")
	g.told = stage.GuardConfig{
		Ephemeral: ephemeralPorts(),
		Families:  len(g.sockets.files) / stage.SocketsPerFamily,
		LogLevel:  b.config.level(), AgentUID: h.agent.identity.UID, BrokerUID: h.broker.uid, Monitor: b.config.Monitor, Reduced: h.reduced, Shared: b.shared(), Engine: h.servers.engine, Elsewhere: h.inside != nil, Own: h.inside.answers(),
	}
	g.keep(guardPatience, wire.MaxText, g.spawn, g.serve)
	return g, nil
}

// open opens a way from the gate to the broker, and returns the guard's end. Where there is no broker, that is nothing of
// use.
func (g *guardKeeper) open(toBroker bool) (*os.File, error) {
	if !toBroker {
		return os.Open(os.DevNull)
	}
	guards, brokers, err := wire.LentPair()
	g.brokers = append(g.brokers, brokers)
	return guards, err
}

const guardPatience = 5 * time.Second

func (g *guardKeeper) spawn(channel *os.File) (*reaper.Process, error) {
	c := g.told
	now := g.book.now()
	c.Bundle = now.bundle
	g.mu.Lock()
	c.Again = g.given != nil
	g.given, g.has = now.bundle, now.policy
	g.mu.Unlock()
	return g.child.spawn(channel, c)
}

// ephemeralPorts are the first and the last port that the kernel gives to
// sockets by itself, of both families (ip(7)). Zero if it does not say.
func ephemeralPorts() (r [2]uint16) {
	data, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if _, err := fmt.Sscan(string(data), &r[0], &r[1]); err != nil {
		return [2]uint16{}
	}
	return r
}

// push hands the present policy to the guard, but for the long lists that the guard has. A guard that can't take it is
// replaced by one that starts with it. What is returned is closed when the guard has it, or is gone; nil if there is
// none: the next one starts with the policy.
func (g *guardKeeper) push() <-chan wire.Message {
	g.pushing.Lock()
	defer g.pushing.Unlock()
	now := g.book.now()
	g.mu.Lock()
	has := g.has
	g.has = now.policy
	g.mu.Unlock()
	brief := has.Brief(now.bundle) // which a guard that has another one refuses
	taken, ch, err := g.hand(wire.OpPolicy, "policy", brief)
	if ch != nil && err != nil {
		g.log.Warn("the guard is restarted to take the new policy", "error", err)
		ch.Close()
	}
	return taken
}

// resolveAhead lets this guard, and those that follow it, go further.
func (g *guardKeeper) resolveAhead(a wire.Ahead) {
	g.mu.Lock()
	g.ahead = a
	ch := g.live
	g.mu.Unlock()
	if ch != nil {
		g.tellAhead(ch, a)
	}
}

func (g *guardKeeper) tellAhead(ch *wire.Channel, a wire.Ahead) {
	if err := ch.Send(wire.Message{Op: wire.OpAhead, Arg: uint64(a)}, nil); err != nil {
		g.log.Debug("telling the guard to resolve ahead", "error", err)
	}
}

// decided tells the guard that somebody has decided about what a question waits for. It waits for nobody.
func (g *guardKeeper) decided(target string) {
	g.mu.Lock()
	ch := g.live
	g.mu.Unlock()
	if ch == nil || len(target) > wire.MaxName {
		return
	}
	go func() {
		if err := ch.Send(wire.Message{Op: wire.OpDecided, Name: target}, nil); err != nil {
			g.log.Debug("telling the guard of a decision", "error", err)
		}
	}()
}

// announce tells the guard which self-test begins, or with nil that it has ended,
// and waits until the guard knows, but not for long.
func (g *guardKeeper) announce(plan any) error {
	taken, _, err := g.hand(wire.OpProbing, "selftest-plan", plan)
	if err == nil {
		g.awaitTaken(taken)
	}
	return err
}
