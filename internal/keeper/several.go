package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// several keeps the agents of a gateway apart. Each has a keeper of its own, with a guard, a broker, rules, a log and a
// directory: a cell, which knows of no other. This process reads nothing that comes from any of them. It holds the one
// table that says who they are, and lets pass of each what its cell has marked.
//
// Locks are taken in this order: changing, mu, publisher.mu.
type several struct {
	*base
	fw     *firewall.Firewall
	table  firewall.Agents // but for the list
	uids   []uint32        // uidsOfCell for each slot
	loaded watched

	changing sync.Mutex // one change of the list at a time
	doors    *net.UnixListener

	mu    sync.Mutex // held while the table is applied: what is in force is what cells says
	cells map[string]*cell
	lost  map[uint16]bool // slots whose processes could not be ended
	next  uint32          // mark; none is used twice
	owed  bool            // the table could not be applied: tried again
	seen  map[netip.Addr]bool
}

// keepSeveral is Keep of several agents.
func keepSeveral(ctx context.Context, c Config) error {
	log, _ := c.logger(os.Stderr)
	b, err := newBase(c, "gateway", log)
	if err != nil {
		return err
	}
	defer b.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g := &several{base: b, cells: map[string]*cell{}, lost: map[uint16]bool{}, seen: map[netip.Addr]bool{}}
	go heed(stop, func() {
		if g.ready() {
			_ = g.reload(context.WithoutCancel(ctx)) // its error is in the log and the status
		}
	})
	b.progress = NewProgress(c, os.Stderr)
	if err := g.begin(ctx); err != nil {
		g.end()
		if ended := endedBy(ctx); ended != 0 {
			return fault.Status(128 + int(ended))
		}
		return err
	}
	g.serve(ctx)
	g.end()
	g.update(func(s *state.State) {
		s.Phase, s.Reason = state.PhaseEnded, "the keeper was told to end; the agents are sealed"
	})
	g.publish()
	return nil
}

// begin runs the steps of the start. Until the last one, nobody passes anything.
func (g *several) begin(ctx context.Context) error {
	s := &starting{base: g.base, ctx: ctx}
	fits := then(s, "check the container", "check the container", func(context.Context, struct{}) (fit, error) {
		if err := g.checkRoot(); err != nil {
			return fit{}, err
		}
		if err := g.requireAll(append([]int{unix.CAP_NET_ADMIN}, privdrop.ExecCapabilities...)); err != nil {
			return fit{}, err
		}
		return fit{}, g.checkAround()
	}, struct{}{})
	safe := then(s, "find who could replace agent-init", "check the container", g.checkProgramPath, fits)
	shut := then(s, "seal the network", "seal the network", g.seal, safe)
	list := then(s, "read the policy", "read the policy", g.open, shut)
	then(s, "apply the rules", "apply the rules", g.apply, list)
	then(s, "start the agents' keepers", "start the keepers", func(ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, g.await(ctx) }, struct{}{})
	if s.err != nil {
		return s.err
	}
	g.update(func(s *state.State) { s.Phase = state.PhaseReady })
	g.publish()
	g.progress.done("confined, in all")
	return nil
}

// open makes the runtime directory and the log, and reads who the agents are.
func (g *several) open(ctx context.Context, s sealed) ([]policy.Agent, error) {
	g.fw = s.fw
	if err := g.takeDir(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(string(g.dir), state.AgentsDir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	g.takeSaved() // which those of the agents are below
	p, err := g.read()
	if err := cmp.Or(g.openLogFor(p), err); err != nil {
		return nil, err
	}
	if g.doors, err = control.Listen(filepath.Join(string(g.dir), ask.ControlSocket), 0o600); err != nil {
		return nil, fault.New(fault.Rules, "mount a tmpfs at /run", "%w", err)
	}
	g.atEnd(func() error {
		if err := g.doors.Close(); !errors.Is(err, net.ErrClosed) { // serving ends it as well
			return err
		}
		return nil
	})
	if g.uids, err = ids.ChooseUIDs("the parts of the agents", firewall.SocketOwners, uidsOfCell*policy.MaxAgents); err != nil {
		return nil, err
	}
	var b [4]byte
	rand.Read(b[:])
	g.next = binary.NativeEndian.Uint32(b[:]) &^ 1
	return p.Settings.Agents, g.giveUp(keeperCaps)
}

// await waits until each keeper has confined its agent, or has failed to: one that fails holds up no other.
func (g *several) await(ctx context.Context) error {
	for {
		settled := true
		g.mu.Lock()
		for _, c := range g.cells {
			settled = settled && c.settled()
		}
		g.mu.Unlock()
		if settled {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serve keeps the agents until ctx ends.
func (g *several) serve(ctx context.Context) {
	go func() {
		s := control.Server{May: func(uid uint32) bool { return uid == 0 }, Handle: g.answer, Log: g.log}
		if err := s.Serve(ctx, g.doors); err != nil {
			g.log.Error("nobody can have the agents read again any more", "error", err)
		}
	}()
	changed, err := g.fw.Watch(ctx)
	if err != nil {
		g.log.Warn("rule changes are noticed by the clock only", "error", err)
	}
	tick, again := time.Tick(time.Second), time.Tick(state.AttestEvery)
	work := stage.SmallBursts()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			if g.overdue() {
				g.attest(ctx)
			}
			work.GiveBack()
			if g.loaded.due(g.filesState()) {
				_ = g.reload(ctx) // its error is in the log and the status
			}
		case <-again:
			g.attest(ctx)
			g.notice(ctx)
			g.audit.Retry()
			g.publish()
		case _, ok := <-changed:
			if !ok {
				changed = nil
				continue
			}
			g.attest(ctx)
			g.publish()
		}
	}
}

// end seals all agents, and ends their keepers.
func (g *several) end() {
	g.mu.Lock()
	all := slices.Collect(maps.Values(g.cells))
	g.mu.Unlock()
	if len(all) == 0 {
		return
	}
	if err := g.change(context.Background(), nil, all); err != nil { // without their rules, which go next, nothing passes either
		g.log.Error("sealing the agents", "error", err)
	}
	var ends sync.WaitGroup
	for _, c := range all {
		ends.Go(c.end)
	}
	ends.Wait()
}
