package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// guardKeeper keeps one guard running. While there is none, the rules stay as
// they are, so nothing new can be opened.
type guardKeeper struct {
	keeper *keeper
	ready  chan struct{} // closed when the first guard serves
	once   sync.Once

	service  stage.Service[wire.Message]
	events   *net.UnixConn // of the present guard
	reported chan struct{} // closed when all of these were read

	mu    sync.Mutex
	live  *wire.GuardChannel       // the channel of the guard that serves now, if any
	ahead wire.Ahead               // how far guards may resolve ahead
	given *policy.Bundle           // what the present guard was started with
	taken map[uint32]chan struct{} // what the present guard has not answered yet
	sent  uint32
}

const leasesAtOnce = 64

func newGuardKeeper(k *keeper) *guardKeeper {
	g := &guardKeeper{keeper: k, ready: make(chan struct{})}
	g.service = stage.Service[wire.Message]{
		Who: "the guard", Patience: guardPatience, Log: k.log,
		Open: wire.OpenGuard, Ping: wire.Message{Op: wire.OpPing}, Start: g.spawn, Serve: g.readRequests,
		Seen: func() (seen time.Time) {
			k.update(func(s *state.State) { seen = s.Guard.Seen })
			return seen
		},
		Lost: g.lost, Gone: g.gone,
		Failed: func(err error, restart time.Duration) {
			k.log.Error("the guard ended; all is refused until the next one serves", "error", err, "restart_in", restart)
			k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: fmt.Sprintf("guard ended: %v; restart in %v", err, restart)})
			k.update(func(s *state.State) { s.Guard.OK, s.Guard.Fault = false, err.Error(); s.Guard.Restarts++ })
			k.publish()
		},
	}
	return g
}

const guardPatience = 5 * time.Second

// await blocks until the first guard serves.
func (g *guardKeeper) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stage.StartTime)
	defer cancel()
	select {
	case <-g.ready:
		return nil
	case <-ctx.Done():
		return errors.New("the guard did not start in time")
	}
}

// lost is called when a guard is not spoken with any more.
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
	if err := g.keeper.sockets.refuse(); err != nil {
		g.keeper.log.Error("refusing connections while there is no guard", "error", err)
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

// spawn runs the guard under its own uid, in its own group.
func (g *guardKeeper) spawn(channel *os.File) (*reaper.Process, error) {
	k := g.keeper
	if err := k.sockets.accept(); err != nil {
		return nil, fmt.Errorf("listen for the guard: %w", err)
	}
	events, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	k.mu.Lock()
	bundle := k.bundle
	k.mu.Unlock()
	g.mu.Lock()
	again := g.given != nil
	g.given = bundle
	g.mu.Unlock()
	proc, err := stage.Spawn(k.reaper, stage.Options{
		Spec: stage.Own("guard", k.guardUID, k.guardGroup.GID, "guard"),
		Config: stage.GuardConfig{
			Bundle: bundle, Servers: k.resolv.Servers, Search: k.resolv.Search, Ephemeral: ephemeralPorts(), Families: k.sockets.families(),
			LogLevel: k.config.level(), AgentUID: k.identity.UID, Monitor: k.config.Monitor, Reduced: k.fw.Reduced() != "",
			Shared: k.shared(), Engine: k.engine, Again: again,
		},
		Files:  append([]*os.File{channel, theirs, k.drops, k.requests, k.edition.File, k.diag}, k.sockets.files...),
		Stderr: k.diagnostics(), Rank: stage.GuardGoes,
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
		e := audit.Untrusted(buf[:n])
		g.keeper.overheard.hear(e)
		g.keeper.record(e)
	}
}

// ephemeralPorts are the first and the last port that the kernel gives to
// sockets by itself, of both families (ip(7)). Zero if it does not say.
func ephemeralPorts() (r [2]uint16) {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return r
	}
	if _, err := fmt.Sscan(string(data), &r[0], &r[1]); err != nil {
		return [2]uint16{}
	}
	return r
}
