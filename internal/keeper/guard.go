package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// guardKeeper keeps one guard running. While there is none, the rules stay as
// they are, so nothing new can be opened.
type guardKeeper struct {
	keeper *keeper
	ready  chan struct{} // closed when the first guard serves
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	live  *wire.GuardChannel       // the channel of the guard that serves now, if any
	ahead wire.Ahead               // how far guards may resolve ahead
	given *policy.Bundle           // what the present guard was started with
	taken map[uint32]chan struct{} // what the present guard has not answered yet
	sent  uint32
}

const leasesAtOnce = 64

func newGuardKeeper(k *keeper) *guardKeeper {
	return &guardKeeper{keeper: k, ready: make(chan struct{}), done: make(chan struct{})}
}

// start begins to keep a guard running, until stop.
func (g *guardKeeper) start(ctx context.Context) {
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go g.run(ctx)
}

// stop ends the guard, and takes the last that it has to report.
func (g *guardKeeper) stop() {
	g.cancel()
	select {
	case <-g.done:
	case <-time.After(2 * stage.FarewellTime):
	}
}

// run starts guards, one after another, until ctx ends.
func (g *guardKeeper) run(ctx context.Context) {
	defer close(g.done)
	backoff := stage.MinBackoff
	for {
		started := time.Now()
		err := g.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > stage.StableAfter {
			backoff = stage.MinBackoff
		}
		g.keeper.log.Error("the guard ended; all is refused until the next one serves", "error", err, "restart_in", backoff)
		g.keeper.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: fmt.Sprintf("guard ended: %v; restart in %v", err, backoff)})
		g.keeper.update(func(s *state.State) { s.Guard.OK, s.Guard.Fault = false, err.Error(); s.Guard.Restarts++ })
		g.keeper.publish()
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, stage.MaxBackoff)
	}
}

// await blocks until the first guard serves.
func (g *guardKeeper) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stage.GuardStartTime)
	defer cancel()
	select {
	case <-g.ready:
		return nil
	case <-ctx.Done():
		return errors.New("the guard did not start in time")
	}
}

// serve runs one guard from its start to its end and says why it ended.
func (g *guardKeeper) serve(ctx context.Context) error {
	ours, theirs, err := wire.Pair()
	if err != nil {
		return err
	}
	ch := wire.OpenGuard(ours)
	defer ch.Close()
	auditOurs, auditTheirs, err := wire.Pair()
	if err != nil {
		theirs.Close()
		return err
	}
	defer auditOurs.Close()
	proc, err := g.spawn(theirs, auditTheirs)
	theirs.Close()
	auditTheirs.Close()
	if err != nil {
		return errors.Join(err, g.keeper.sockets.refuse())
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reported := make(chan struct{})
	go func() { g.readAudit(auditOurs); close(reported) }()
	go func() { cancel(g.readRequests(ctx, ch)) }()
	go func() { cancel(g.ping(ctx, ch)) }()
	select {
	case <-proc.Done():
		err = fmt.Errorf("%v", proc.Status())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.mu.Lock()
	g.live = nil
	for id, taken := range g.taken {
		close(taken)
		delete(g.taken, id)
	}
	g.mu.Unlock()
	// A guard whose channel is closed ends by itself, and flushes its counts.
	ch.Close()
	select {
	case <-proc.Done():
	case <-time.After(stage.FarewellTime):
	}
	g.end(proc)
	if err := g.keeper.sockets.refuse(); err != nil {
		g.keeper.log.Error("refusing connections while there is no guard", "error", err)
	}
	select {
	case <-reported:
	case <-time.After(stage.FarewellTime):
	}
	return err
}

// spawn runs the guard under its own uid, in its own group. Its whole input is in a memfd.
func (g *guardKeeper) spawn(channel, auditEnd *os.File) (*reaper.Process, error) {
	k := g.keeper
	if err := k.sockets.accept(); err != nil {
		return nil, fmt.Errorf("listen for the guard: %w", err)
	}
	k.mu.Lock()
	bundle := k.bundle
	k.mu.Unlock()
	g.mu.Lock()
	again := g.given != nil
	g.given = bundle
	g.mu.Unlock()
	cfg, err := wire.Memfd("guard-config", stage.GuardConfig{
		Bundle: bundle, Servers: k.resolv.Servers, Search: k.resolv.Search, Ephemeral: ephemeralPorts(), Families: k.sockets.families(), LogLevel: k.config.level(), AgentUID: k.identity.UID, Monitor: k.config.Monitor, Reduced: k.fw.Reduced() != "",
		Shared: k.shared(), Engine: k.engine, Again: again,
	})
	if err != nil {
		return nil, err
	}
	defer cfg.Close()
	files := append([]*os.File{cfg, channel, auditEnd, k.drops, k.requests, k.edition.File, k.diag}, k.sockets.files...)
	return stage.Spawn(k.reaper, stage.Options{
		Spec: privdrop.Spec{
			Identity: privdrop.Identity{UID: k.guardUID, GID: k.guardGroup.GID, Name: "agent-init-guard", Home: "/", Shell: "/nonexistent"},
			Argv:     []string{stage.Self, "guard"}, Env: []string{}, Dir: "/", Umask: 0o077,
			KeepFDs: len(files) + 1, DenyUserNS: true,
		},
		Files: files, Stderr: k.diagnostics(), Rank: stage.GuardGoes,
	})
}

// end makes sure that the guard is gone before the next one starts. It may be
// stopped or hung.
func (g *guardKeeper) end(p *reaper.Process) {
	for {
		stage.Kill(g.keeper.log, p, syscall.SIGKILL)
		select {
		case <-p.Done():
			return
		case <-time.After(time.Second):
		}
	}
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

// ping finds a guard that is alive and does nothing: stopped, or hung.
func (g *guardKeeper) ping(ctx context.Context, ch *wire.GuardChannel) error {
	t := time.NewTicker(stage.PingEvery)
	defer t.Stop()
	quiet := stage.Silence{Who: "the guard", Patience: stage.PingPatience, Since: time.Now()}
	for id := uint32(1); ; id++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		var seen time.Time
		g.keeper.update(func(s *state.State) { seen = s.Guard.Seen })
		serves, err := quiet.Look(seen)
		if err != nil {
			return err
		}
		if !serves {
			continue
		}
		if err := ch.Send(wire.Message{Op: wire.OpPing, ID: id}, nil); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("ask the guard: %w", err)
		}
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
