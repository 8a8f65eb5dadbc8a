package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// guardKeeper keeps one guard running, and owns what it is lent. While there is none, the
// rules stay as they are, so nothing new can be opened.
type guardKeeper struct {
	*base
	book      *book
	leases    *leases
	told      stage.GuardConfig // but for what changes
	spec      privdrop.Spec
	sockets   *guardSockets
	lent      []*os.File // behind the configuration and the channels, see stage.FDDrops
	finding   finding
	overheard overheard

	ready chan struct{} // closed when the first guard serves
	once  sync.Once

	service  stage.Service
	events   *net.UnixConn // of the present guard
	reported chan struct{} // closed when all of these were read

	mu    sync.Mutex
	live  *wire.Channel            // the channel of the guard that serves now, if any
	ahead wire.Ahead               // how far guards may resolve ahead
	given *policy.Bundle           // what the present guard was started with
	taken map[uint32]chan struct{} // what the present guard has not answered yet
	sent  uint32
}

// newGuardKeeper opens what guards are lent. It stays the keeper's while they come and go.
func newGuardKeeper(ctx context.Context, b *base, h hardened) (*guardKeeper, error) {
	g := &guardKeeper{base: b, book: h.book, leases: h.leases, ready: make(chan struct{}), taken: map[uint32]chan struct{}{}}
	var err error
	if g.sockets, err = openGuardSockets(ctx); err != nil {
		return nil, err
	}
	drops, err := openDrops(h.reduced)
	if err != nil {
		return nil, fault.New(fault.Rules, "use a kernel with nfnetlink_log (CONFIG_NETFILTER_NETLINK_LOG)", "open the log of refused packets: %w", err)
	}
	diag, err := g.finding.open(h.agent)
	if err != nil {
		return nil, err
	}
	g.lent = append([]*os.File{drops, h.doors.requests, h.leases.edition.File, diag}, g.sockets.files...)
	g.spec = stage.Own("guard", h.agent.guardUID, h.group.GID, "guard")
	g.told = stage.GuardConfig{
		Servers: h.servers.conf.Servers, Search: h.servers.conf.Search, Ephemeral: ephemeralPorts(),
		Families: len(g.sockets.files) / stage.SocketsPerFamily,
		LogLevel: b.config.level(), AgentUID: h.agent.identity.UID, Monitor: b.config.Monitor, Reduced: h.reduced, Shared: b.shared(), Engine: h.servers.engine,
	}
	g.service = stage.Service{
		Who: "the guard", Patience: guardPatience, Log: b.log,
		MaxText: wire.MaxText, Start: g.spawn, Serve: g.serve,
		Seen: func() time.Time { return g.status().Guard.Seen },
		Lost: g.lost, Gone: g.gone,
		Failed: func(err error, restart time.Duration) {
			g.log.Error("the guard ended; all is refused until the next one serves", "error", err, "restart_in", restart)
			g.guardian(audit.Fault, fmt.Sprintf("guard ended: %v; restart in %v", err, restart))
			g.update(func(s *state.State) { s.Guard.OK, s.Guard.Fault = false, err.Error(); s.Guard.Restarts++ })
			g.publish()
		},
	}
	return g, nil
}

const guardPatience = 5 * time.Second

func (g *guardKeeper) lost() (over bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live = nil
	for id, taken := range g.taken {
		close(taken)
		delete(g.taken, id)
	}
	return false
}

// gone is called when there is no guard: connections are refused until the next one.
func (g *guardKeeper) gone() {
	if err := g.sockets.refuse(); err != nil {
		g.log.Error("refusing connections while there is no guard", "error", err)
	}
	if g.events == nil { // it could not be started
		return
	}
	select {
	case <-g.reported:
	case <-time.After(stage.FarewellTime):
	}
	g.events.Close()
	g.events = nil
}

func (g *guardKeeper) spawn(channel *os.File) (*reaper.Process, error) {
	if err := g.sockets.accept(); err != nil {
		return nil, fmt.Errorf("listen for the guard: %w", err)
	}
	events, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := g.told
	c.Bundle = g.book.now().bundle
	g.mu.Lock()
	c.Again = g.given != nil
	g.given = c.Bundle
	g.mu.Unlock()
	proc, err := stage.Spawn(g.reaper, stage.Options{
		Spec: g.spec, Config: c, Files: append([]*os.File{channel, theirs}, g.lent...), Stderr: g.diagnostics(), Rank: stage.GuardGoes,
	})
	if err != nil {
		events.Close()
		return nil, err
	}
	reported := make(chan struct{})
	g.events, g.reported = events, reported
	go func() { g.readAudit(events); close(reported) }()
	return proc, nil
}

// readAudit records what the guard reports, which is neither trusted nor
// unlimited: numbers and bounded texts, see audit.Pack.
func (g *guardKeeper) readAudit(conn *net.UnixConn) {
	buf := make([]byte, audit.MaxPacked+1)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		e := audit.Untrusted(audit.TheGuard, buf[:n])
		g.overheard.hear(e)
		g.record(e)
	}
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

// push hands the present policy to the guard. A guard that can't take it is replaced by one that starts with it. What
// is returned is closed when the guard has it, or is gone; nil if there is none: the next one starts with the policy.
func (g *guardKeeper) push() <-chan struct{} {
	taken, ch, err := g.hand(wire.OpPolicy, "policy", g.book.now().bundle)
	if ch != nil && err != nil {
		g.log.Warn("the guard is restarted to take the new policy", "error", err)
		ch.Close()
	}
	return taken
}

// hand sends the serving guard a message, and v in a file. What is returned is closed once it has answered, or is gone.
func (g *guardKeeper) hand(op wire.Op, name string, v any) (<-chan struct{}, *wire.Channel, error) {
	taken := make(chan struct{})
	g.mu.Lock()
	ch := g.live
	if ch != nil {
		g.sent++
		g.taken[g.sent] = taken
	}
	m := wire.Message{Op: op, ID: g.sent}
	g.mu.Unlock()
	if ch == nil {
		return nil, nil, errors.New("there is no guard")
	}
	if v == nil {
		return taken, ch, ch.Send(m, nil)
	}
	f, err := wire.Memfd(name, v)
	if err != nil {
		return taken, ch, err
	}
	defer f.Close()
	return taken, ch, ch.Send(m, f)
}

func (g *guardKeeper) noteTaken(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if taken := g.taken[id]; taken != nil {
		close(taken)
		delete(g.taken, id)
	}
}

func (g *guardKeeper) awaitTaken(taken <-chan struct{}) {
	if taken == nil {
		return
	}
	select {
	case <-taken:
	case <-time.After(700 * time.Millisecond): // what is no longer allowed is to end within a second
		g.log.Warn("the guard is late to take what it was told")
	}
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

// announce tells the guard which self-test begins, or with nil that it has ended,
// and waits until the guard knows, but not for long.
func (g *guardKeeper) announce(plan any) error {
	taken, _, err := g.hand(wire.OpProbing, "selftest-plan", plan)
	if err == nil {
		g.awaitTaken(taken)
	}
	return err
}
