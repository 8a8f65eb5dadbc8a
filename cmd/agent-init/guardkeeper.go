package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	live  *channel                 // the channel of the guard that serves now, if any
	ahead ahead                    // how far guards may resolve ahead
	given *policy.Bundle           // what the present guard was started with
	taken map[uint32]chan struct{} // what the present guard has not answered yet
	sent  uint32
}

// How a guard is judged, and how soon its successor comes.
const (
	guardStartTime = 10 * time.Second // until it serves
	pingEvery      = time.Second
	pingPatience   = 5 * time.Second // silence after which it counts as hung, see silence
	minBackoff     = 50 * time.Millisecond
	maxBackoff     = 5 * time.Second
	stableAfter    = 30 * time.Second
	farewellTime   = 300 * time.Millisecond // to write what it has counted, at the end
	leasesAtOnce   = 64
	leasesWaiting  = 1024 // more are refused
)

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
	case <-time.After(2 * farewellTime):
	}
}

// run starts guards, one after another, until ctx ends.
func (g *guardKeeper) run(ctx context.Context) {
	defer close(g.done)
	backoff := minBackoff
	for {
		started := time.Now()
		err := g.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > stableAfter {
			backoff = minBackoff
		}
		g.keeper.log.Error("the guard ended; all is refused until the next one serves", "error", err, "restart_in", backoff)
		g.keeper.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: fmt.Sprintf("guard ended: %v; restart in %v", err, backoff)})
		g.keeper.update(func(s *state) { s.Guard.OK, s.Guard.Fault = false, err.Error(); s.Guard.Restarts++ })
		g.keeper.publish()
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// ahead is how far a guard resolves the policy's names before anybody asks.
type ahead uint32

const (
	aheadNone  ahead = iota // the rules are not applied yet
	aheadFirst              // what the self-test needs
	aheadAll                // the rest must not slow the start down
)

// resolveAhead lets this guard, and those that follow it, go further.
func (g *guardKeeper) resolveAhead(a ahead) {
	g.mu.Lock()
	g.ahead = a
	ch := g.live
	g.mu.Unlock()
	if ch != nil {
		g.tellAhead(ch, a)
	}
}

func (g *guardKeeper) tellAhead(ch *channel, a ahead) {
	if err := ch.send(message{op: opAhead, id: uint32(a)}, nil); err != nil {
		g.keeper.log.Debug("telling the guard to resolve ahead", "error", err)
	}
}

// await blocks until the first guard serves.
func (g *guardKeeper) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guardStartTime)
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
	ours, theirs, err := newPair()
	if err != nil {
		return err
	}
	ch := openChannel(ours)
	defer ch.close()
	auditOurs, auditTheirs, err := newPair()
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
	ch.close()
	select {
	case <-proc.Done():
	case <-time.After(farewellTime):
	}
	g.end(proc)
	if err := g.keeper.sockets.refuse(); err != nil {
		g.keeper.log.Error("refusing connections while there is no guard", "error", err)
	}
	select {
	case <-reported:
	case <-time.After(farewellTime):
	}
	return err
}

// spawn runs the guard under its own uid. Its whole input is in a memfd.
func (g *guardKeeper) spawn(channel, auditEnd *os.File) (*reaper.Process, error) {
	k := g.keeper
	if err := k.sockets.accept(); err != nil {
		return nil, fmt.Errorf("listen for the guard: %w", err)
	}
	k.mu.Lock()
	bundle := k.bundle
	k.mu.Unlock()
	g.mu.Lock()
	g.given = bundle
	g.mu.Unlock()
	cfg, err := memfd("guard-config", guardConfig{
		Bundle: bundle, Servers: k.resolv.servers, Search: k.resolv.search, Ephemeral: ephemeralPorts(), Families: k.sockets.families(), LogLevel: k.config.level(), AgentUID: k.identity.UID, Monitor: k.config.monitor, Reduced: k.fw.Reduced() != "",
	})
	if err != nil {
		return nil, err
	}
	defer cfg.Close()
	files := append([]*os.File{cfg, channel, auditEnd, k.drops, k.requests, k.edition.file, k.diag}, k.sockets.files...)
	return k.spawn(spawnOptions{
		spec: privdrop.Spec{
			Identity: privdrop.Identity{UID: k.guardUID, GID: k.guardUID, Name: "agent-init-guard", Home: "/", Shell: "/nonexistent"},
			Argv:     []string{"/proc/self/exe", "guard"}, Env: []string{}, Dir: "/", Umask: 0o077,
			KeepFDs: len(files) + 1, DenyUserNS: true,
		},
		files: files, stderr: k.diagnostics(),
	})
}

// end makes sure that the guard is gone before the next one starts. It may be
// stopped or hung.
func (g *guardKeeper) end(p *reaper.Process) {
	for {
		g.keeper.kill(p, syscall.SIGKILL)
		select {
		case <-p.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func (g *guardKeeper) readRequests(ctx context.Context, ch *channel) error {
	slots := make(chan struct{}, leasesAtOnce)
	var waiting atomic.Int64
	for {
		m, file, err := ch.receive()
		if file != nil {
			file.Close() // the guard has none to give
		}
		if errors.Is(err, errBadMessage) {
			return errors.New("the guard sent a malformed message")
		}
		if err != nil {
			return fmt.Errorf("the guard closed its channel: %w", err)
		}
		switch m.op {
		case opReady:
			g.serving(ch)
		case opPong:
			g.keeper.update(func(s *state) { s.Guard.Seen, s.Guard.Stats = time.Now(), m.stats })
		case opPolicy:
			if m.err {
				return errors.New("the guard could not take the new policy")
			}
			g.noteTaken(m.id)
		case opFlush:
			g.noteTaken(m.id)
		case opRequest:
			go g.serveRequest(ch, m)
		case opOwner:
			go func() {
				if err := ch.send(g.keeper.owner(m), nil); err != nil {
					g.keeper.log.Debug("answering the guard", "error", err)
				}
			}()
		case opHeld, opDirect:
			answer := g.keeper.held
			if m.op == opDirect {
				answer = g.keeper.direct
			}
			if err := ch.send(answer(m), nil); err != nil {
				g.keeper.log.Debug("answering the guard", "error", err)
			}
		case opLease:
			// Leases may wait for a change of the policy. What the guard sends
			// besides must be read meanwhile: it is what shows that it lives.
			lease := func() message {
				slots <- struct{}{}
				defer func() { <-slots }()
				return g.keeper.lease(ctx, m)
			}
			if waiting.Load() >= leasesWaiting {
				lease = func() message { return message{op: opLease, id: m.id, err: true} }
			}
			waiting.Add(1)
			go func() {
				defer waiting.Add(-1)
				if err := ch.send(lease(), nil); err != nil {
					g.keeper.log.Debug("answering the guard", "error", err)
				}
			}()
		default:
			return errors.New("the guard sent an unknown request")
		}
	}
}

func (g *guardKeeper) serving(ch *channel) {
	k := g.keeper
	k.mu.Lock()
	present := k.bundle
	k.mu.Unlock()
	g.mu.Lock()
	g.live = ch
	outdated, ahead := g.given != present, g.ahead
	g.mu.Unlock()
	g.tellAhead(ch, ahead)
	if outdated { // the policy changed while the guard was on its way
		g.push()
	}
	again := false
	k.update(func(s *state) {
		again = s.Guard.Restarts > 0
		s.Guard.OK, s.Guard.Fault, s.Guard.Seen = true, "", time.Now()
	})
	if again {
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Info, Reason: "guard serves again"})
	}
	k.publish()
	g.once.Do(func() { close(g.ready) })
}

// push hands the present policy to the guard. A guard that can't take it is
// replaced by one that starts with it. What is returned is closed when the guard
// has it, or is gone; nil if there is none.
func (g *guardKeeper) push() <-chan struct{} {
	ch, id, taken := g.expect()
	if ch == nil {
		return nil // the next guard starts with the new policy
	}
	k := g.keeper
	k.mu.Lock()
	bundle := k.bundle
	k.mu.Unlock()
	f, err := memfd("policy", bundle)
	if err == nil {
		err = ch.send(message{op: opPolicy, id: id}, f)
		f.Close()
	}
	if err != nil {
		k.log.Warn("the guard is restarted to take the new policy", "error", err)
		ch.close()
	}
	return taken
}

// expect returns the channel of the guard that serves, nil if none does, and what is
// closed when it has answered id, or is gone.
func (g *guardKeeper) expect() (ch *channel, id uint32, taken chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live == nil {
		return nil, 0, nil
	}
	g.sent++
	taken = make(chan struct{})
	if g.taken == nil {
		g.taken = map[uint32]chan struct{}{}
	}
	g.taken[g.sent] = taken
	return g.live, g.sent, taken
}

// flush has the guard write down what it holds back of the log, and waits for
// that, but not for long.
func (g *guardKeeper) flush() {
	ch, id, taken := g.expect()
	if ch == nil {
		return
	}
	if err := ch.send(message{op: opFlush, id: id}, nil); err != nil {
		return // the guard has ended, with all that it held
	}
	select {
	case <-taken:
	case <-time.After(takePatience):
	}
}

func (g *guardKeeper) noteTaken(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if taken := g.taken[id]; taken != nil {
		close(taken)
		delete(g.taken, id)
	}
}

// takePatience is how long a change of the policy waits for the guard to have
// it: what is no longer allowed is to end within a second.
const takePatience = 700 * time.Millisecond

func (g *guardKeeper) awaitTaken(taken <-chan struct{}) {
	if taken == nil {
		return
	}
	select {
	case <-taken:
	case <-time.After(takePatience):
		g.keeper.log.Warn("the guard is late to take the new policy")
	}
}

// readAudit records what the guard reports, which is neither trusted nor
// unlimited.
func (g *guardKeeper) readAudit(conn *net.UnixConn) {
	buf := make([]byte, audit.MaxEncoded+1)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		if e := audit.Untrusted(buf[:n]); !g.keeper.probing.caused(e) {
			g.keeper.record(e)
		}
	}
}

// memfd holds v as JSON, sealed against change, at its start.
func memfd(name string, v any) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = json.NewEncoder(f).Encode(v)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return f, nil
}

// The guard's uid is one that no account has: below 65536, so that it exists in
// the usual user namespaces, and above what distributions hand out.
const (
	firstGuardUID = 64901
	guardUIDs     = 64
)

// chooseUID finds a uid for what is named that is nobody's: no account has it, no process
// runs under it, no socket of this network namespace is owned by it and it is mapped in this user namespace. It is exempt from
// nothing but the way to the upstream servers.
func chooseUID(what string, taken ...uint32) (uint32, error) {
	running, err := runningUIDs()
	if err != nil {
		return 0, err
	}
	sockets, err := socketUIDs("/proc/self/net")
	if err != nil {
		return 0, err
	}
	for uid := uint32(firstGuardUID); uid < firstGuardUID+guardUIDs; uid++ {
		if slices.Contains(taken, uid) || running[uid] || sockets[uid] {
			continue
		}
		if _, err := user.LookupId(strconv.Itoa(int(uid))); err == nil {
			continue
		}
		if _, err := user.LookupGroupId(strconv.Itoa(int(uid))); err == nil {
			continue
		}
		if uidMapped(uid) {
			return uid, nil
		}
	}
	return 0, faultf(exitPrivilege, "map at least 65536 uids into the container's user namespace",
		"no uid between %d and %d is free and mapped for %s", firstGuardUID, firstGuardUID+guardUIDs-1, what)
}
