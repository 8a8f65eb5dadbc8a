package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// steps is the whole of the start, in order. Any failure ends it, and what was sealed stays sealed.
func (b *base) steps(ctx context.Context) (*keeper, error) {
	s := &starting{base: b, ctx: ctx}
	// Nothing has been touched yet.
	fits := then(s, "check the container", "check the container", b.checkContainer, struct{}{})
	safe := then(s, "find who could replace agent-init", "check the container", b.checkProgramPath, fits)
	// From here on nothing leaves; older flows are forgotten.
	shut := then(s, "seal the network", "seal the network", b.seal, safe)
	// One keeper only; state and audit log.
	home := then(s, "prepare the runtime directory", "read the policy", b.openRuntime, shut)
	// Trusted files, owned by root.
	told := then(s, "read the policy", "read the policy", b.loadPolicy, home)
	// Nobody is served yet.
	open := then(s, "open the control sockets", "read the policy", b.openSockets, told)
	who := then(s, "find the agent's user", "read the policy", b.findUser, open)
	// Before anything untrusted runs.
	bare := then(s, "give up what is not needed", "read the policy", b.harden, who)
	// It reads the policy while the rules are applied.
	watched := then(s, "start the guard", "start the guard", b.startGuard, bare)
	// One transaction.
	held := then(s, "apply the rules", "apply the rules", b.applyRules, watched)
	// Names are answered from here on.
	heard := then(s, "wait for the guard", "wait for the guard", b.awaitGuard, held)
	// From the agent's side, with its credentials.
	k := then(s, "prove the confinement", "prove the confinement", b.proveConfinement, heard)
	return k, s.err
}

// boot runs the steps. Its error is a fault that says which of them failed.
func (b *base) boot(ctx context.Context) (*keeper, error) {
	started := time.Now()
	if b.config.Monitor {
		announceOpen(os.Stderr, b.config.NoColor, "\x1b[1;43;30m",
			"  --mode monitor: THE NETWORK IS NOT CONFINED. What the policy denies is let through, and logged. ",
			"  Only metadata and reserved addresses stay denied. See agent-init suggest, then use enforce.     ")
	}
	k, err := b.steps(ctx)
	if err != nil {
		return nil, err
	}
	stage.Settle(stage.ServerThreads) // only now: the self-test takes threads as well, and there may be few
	k.guard.resolveAhead(wire.AheadAll)
	k.broker.release()
	approvals := newApprovals(k)
	k.book.notifier.begin(newErrands(k, approvals), k.guard.decided)
	// Whoever hears that it is ready finds everything in its place.
	published := k.publishAll()
	k.update(func(s *state.State) { s.Phase = state.PhaseReady })
	k.publish()
	go k.operate(context.WithoutCancel(ctx), published, approvals)
	go k.followPhase(context.WithoutCancel(ctx))
	st := k.status()
	for _, line := range st.Broker.Keys() {
		b.progress.note(line)
		b.log.Info(line)
		b.guardian(audit.Info, line)
	}
	if b.config.Monitor {
		b.progress.done("ready, NOT CONFINED")
	} else {
		b.progress.done("confined, in all")
	}
	b.log.Info("confined", "took", time.Since(started).Round(10*time.Microsecond))
	return k, nil
}

func (b *base) fail(f *fault.Fault) *fault.Fault {
	f.Remedy = b.launch.Spell(f.Remedy, b.config.IsSetting)
	b.update(func(s *state.State) { s.Phase, s.Reason, s.Code = state.PhaseFailed, f.Error(), f.Code })
	b.publish()
	b.guardian(audit.Fault, "not started: "+text.InOneLine(f))
	return f
}

func (b *base) checkRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	if dir, err := state.Find(); err == nil {
		var s state.State
		if dir.Read(state.StatusFile, &s) == nil && s.Keeper.Alive() && s.Mode == "run" {
			return fault.New(fault.Privilege, "give the entrypoint the command alone (docker run … IMAGE claude); its flags are variables: -e AGENT_INIT_SESSION=always",
				"agent-init is the container's entrypoint already, and has started this command as the agent (uid %d)", os.Geteuid())
		}
	}
	return fault.New(fault.Privilege, b.launch.AsRoot()+"; agent-init drops to the agent's user itself",
		"agent-init %s needs root, and runs as uid %d", b.mode, os.Geteuid())
}

func (b *base) checkContainer(context.Context, struct{}) (fit, error) {
	if err := b.checkRoot(); err != nil {
		return fit{}, err
	}
	need := append([]int{unix.CAP_NET_ADMIN}, privdrop.ExecCapabilities...)
	if strings.HasPrefix(b.config.Backend, "xtables") {
		need = append(need, unix.CAP_NET_RAW)
	}
	if err := b.requireAll(need); err != nil {
		return fit{}, err
	}
	if err := b.checkAround(); err != nil {
		return fit{}, err
	}
	in, err := b.findInside()
	return fit{in}, err
}

// checkAround looks at what is beside this keeper.
func (b *base) checkAround() error {
	b.warnOfEngines()
	// A keeper at work would be disturbed by what comes before the lock.
	if dir, err := state.Find(); err == nil && dir.Kept() {
		return alreadyKept(dir, unix.EWOULDBLOCK)
	}
	// Programs of a pod or of a running devcontainer may listen already; a
	// container that only now starts has none of its own.
	shared := b.mode != "run" || os.Getpid() != 1
	if err := firewall.CheckNamespace(shared); err != nil {
		return fault.New(fault.Rules, "start the container with a network of its own (no --network host); for one that containers share, use agent-init sidecar", "%w", err)
	}
	if seen := container.ForeignProcesses("/proc"); seen != "" {
		return fault.New(fault.Rules, container.PidRemedy, "the agent could look into processes that are not the container's: %s", seen)
	}
	return nil
}

func (b *base) checkProgramPath(_ context.Context, f fit) (examined, error) {
	return examined{f}, container.ProgramPathFault(b.config.Environ["PATH"])
}

const kernelRemedy = "use a kernel with nf_tables, or with ip_set and iptables-legacy in the image, for IPv4 and IPv6; see docs/platforms.md"

func (b *base) seal(ctx context.Context, e examined) (sealed, error) {
	// The table outlives the process only if PID 1 can't be outlived: in the
	// other modes a later keeper must be able to take it over.
	owner := b.mode == "run" && os.Getpid() == 1
	// What iptables locks on a read-only root: no one but root can open it, in a directory that is root's.
	lock := ""
	if dir, err := state.Make(b.mode); err == nil { // else the start ends at its next step
		lock = filepath.Join(string(dir), "xtables.lock")
	}
	fw, err := firewall.Open(ctx, firewall.Options{Backend: b.config.Backend, Owner: owner, Seal: true, Run: b.runProgram, LockFile: lock, Log: b.log})
	switch {
	case errors.Is(err, firewall.ErrPermission):
		return sealed{}, fault.New(fault.Privilege, b.launch.Capabilities("NET_ADMIN"), "%w", err)
	case errors.Is(err, firewall.ErrRaw):
		return sealed{}, fault.New(fault.Privilege, b.launch.Capabilities("NET_RAW")+"; or use --backend nftables", "%w", err)
	case err != nil:
		return sealed{}, fault.New(fault.Rules, kernelRemedy, "seal the network: %w", err)
	}
	b.atEnd(fw.Close)
	if b.config.Gateway != nil && fw.Backend != "nftables" {
		return sealed{}, fault.New(fault.Rules, "use a kernel with nf_tables for the gateway; agent-init run and sidecar do without", "a gateway needs nftables, and this kernel has %s: %s", fw.Backend, fw.Why)
	}
	b.update(func(s *state.State) {
		s.Firewall.Backend, s.Firewall.Why, s.Firewall.Reduced = fw.Backend, fw.Why, fw.Reduced
	})
	// An earlier keeper of this network namespace may have leased what the policy no longer allows.
	if err := fw.RevokeAll(ctx); err != nil {
		return sealed{}, fault.New(fault.Rules, "report this with the container's run line", "end older leases: %w", err)
	}
	// While everything is sealed, nothing that is forgotten can come back.
	if err := fw.FlushConntrack(ctx); err != nil {
		return sealed{}, fault.New(fault.Rules, "use a kernel with nf_conntrack_netlink (CONFIG_NF_CT_NETLINK)", "forget older connections: %w", err)
	}
	return sealed{fw, fw.Reduced != "", e.inside}, nil
}

// takeDir makes the runtime directory, and the container this keeper's.
func (b *base) takeDir() error {
	dir, err := state.Make(b.mode)
	if err != nil {
		return fault.New(fault.Rules, "mount a tmpfs at /run (docker: --tmpfs /run; kubernetes: an emptyDir at /run/agent-init, of this container alone)", "no directory for the runtime state can be written: %w", err)
	}
	if b.lock, err = dir.Lock(); err != nil {
		return alreadyKept(dir, err)
	}
	b.dir = dir
	b.publish()
	return nil
}

func (b *base) openRuntime(_ context.Context, s sealed) (placed, error) {
	if err := b.takeDir(); err != nil {
		return placed{}, err
	}
	return placed{s, b.findServers(s.reduced)}, nil
}

// openLogFor opens the log that p asks for; nil: the usual one.
func (b *base) openLogFor(p *policy.Policy) error {
	var o audit.Options
	if p != nil {
		log := p.Settings.Log
		if o.MaxSize, o.Files = log.MaxSize, log.Files; log.Stdout {
			o.Mirror = os.Stdout
		}
	}
	end, err := b.openLog(o)
	if err == nil {
		b.atEnd(end)
	}
	return err
}

// readFirst reads the policy, and opens the log that it asks for. Also why there is no policy is recorded.
func (b *base) readFirst(servers *servers, judge func(*policy.Policy) error, noRoutes hindrance) (*book, error) {
	k := &book{base: b, servers: servers, judge: judge, credentials: newCredentials(b, noRoutes)}
	k.takeSaved()
	files, p, err := k.readBegun()
	if err := cmp.Or(b.openLogFor(p), err); err != nil {
		return nil, err
	}
	for _, w := range p.Warnings {
		b.log.Warn(w.Error())
	}
	b.recordPolicy(p, files.Signed, "policy loaded")
	if err := files.Signed.Remember(b.config.SeenFile); err != nil {
		return nil, container.ReadFault(err)
	}
	k.files = files
	k.tellPhase(files)
	begun := &inForce{bundle: files, policy: p}
	begun.grants.Adopt(grant.ReadSaved(k.savedIn(files)))
	k.present.Store(begun)
	k.publishRoutes()
	k.publishServers(p)
	return k, nil
}

func (b *base) loadPolicy(_ context.Context, at placed) (l loaded, err error) {
	var noRoutes hindrance
	if at.reduced {
		noRoutes = insideGVisor
	}
	judge := func(p *policy.Policy) error {
		return cmp.Or(b.judgeProxy(p, at.inside, at.reduced), at.servers.judge(p))
	}
	if l.book, err = b.readFirst(at.servers, judge, noRoutes); err != nil {
		return l, err
	}
	if err := askable(l.book.policy()); err != nil {
		return l, err
	}
	if err := stage.ForgetVariables(variables(l.book.policy().Settings.Broker)); err != nil {
		b.log.Warn("taking credentials out of the environment", "error", err)
	}
	if b.config.Monitor {
		b.guardian(audit.Fault, "NOT CONFINED: started with --mode monitor")
	}
	edition, err := wire.NewEdition()
	if err != nil {
		return l, err
	}
	books := lease.NewBooks(l.book.policy(), edition)
	b.update(func(*state.State) { b.leased = books })
	l.placed, l.leases = at, &leases{
		base: b, book: l.book, fw: at.fw, reduced: at.reduced, books: books, edition: edition,
		names: budget.NewBudget(), requests: budget.Pace{Burst: wire.RequestBurst, Every: wire.RequestEvery},
		held: budget.Pace{Burst: wire.RequestBurst, Every: wire.RequestEvery},
	}
	return l, nil
}

func (b *base) findUser(_ context.Context, l listening) (f found, err error) {
	if f.agent, err = b.findAgent(l.book); err != nil {
		return f, err
	}
	f.listening, f.agent.reduced = l, l.reduced
	if f.agent.guardUID, err = ids.ChooseUID("the guard", firewall.SocketOwners, f.agent.identity.UID); err != nil {
		return f, err
	}
	b.update(func(s *state.State) { s.Guard.UID = f.agent.guardUID })
	if f.group, err = ids.ChooseGroup(f.agent.guardUID, f.agent.identity.GID, f.agent.identity.Groups...); err != nil {
		return f, fmt.Errorf("find a group for the guard: %w", err)
	}
	for _, c := range f.group.Caveats() {
		b.log.Warn(c)
	}
	if l.reduced {
		return f, nil
	}
	if !l.book.brokers() {
		l.book.credentials.without(hindrance{"there was no route when agent-init was started", "start the container again to have one"})
	} else if f.broker, err = f.another("the broker"); err != nil {
		return f, err
	}
	return f, err
}

// another finds a user and a group that nobody else has, those that were found before included.
func (f found) another(what string) (p person, err error) {
	if p.uid, err = ids.ChooseUID(what, firewall.SocketOwners, f.agent.identity.UID, f.agent.guardUID, f.broker.uid); err != nil {
		return p, err
	}
	if p.group, err = ids.ChooseGroup(p.uid, f.agent.identity.GID, append([]uint32{f.group.GID, f.broker.group.GID}, f.agent.identity.Groups...)...); err != nil {
		return p, fmt.Errorf("find a group for %s: %w", what, err)
	}
	return p, nil
}

// keeperCaps are what the keeper goes on using: the rules, and the starting and ending of processes under other uids.
var keeperCaps = []int{unix.CAP_NET_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_KILL}

func (b *base) giveUp(but []int) error {
	if err := privdrop.Harden(but...); err != nil {
		return fault.New(fault.Privilege, "report this with the container's run line", "give up capabilities: %w", err)
	}
	if c := stage.OomCaveat(); c != "" {
		b.log.Warn(c)
	}
	return nil
}

func (b *base) harden(_ context.Context, f found) (hardened, error) {
	keep := keeperCaps
	if strings.HasPrefix(f.fw.Backend, "xtables") { // iptables opens raw sockets
		keep = append(slices.Clone(keep), unix.CAP_NET_RAW)
	}
	return hardened{f}, b.giveUp(keep)
}

// startGuard starts the first guard ahead of the rules, since both take a while. Sealed in, it can reach nobody yet.
func (b *base) startGuard(ctx context.Context, h hardened) (guarded, error) {
	g, err := newGuardKeeper(ctx, b, h)
	if err != nil {
		return guarded{}, err
	}
	out := guarded{hardened: h, guard: g}
	if h.broker.uid != 0 {
		if out.broker, err = newBrokerKeeper(ctx, b, out); err != nil {
			return guarded{}, err
		}
		out.agent.broker = out.broker
	}
	g.service.Begin()
	b.atEnd(func() error { g.service.Stop(0); return nil }) // with the last that it has to report
	if out.broker != nil {
		out.broker.service.Begin()
		b.atEnd(func() error { out.broker.service.Stop(0); return nil })
	}
	return out, nil
}

func (b *base) applyRules(ctx context.Context, g guarded) (ruled, error) {
	k := &keeper{
		base: b, book: g.book, leases: g.leases, rules: newRules(b, g, g.broker.identity()),
		guard: g.guard, broker: g.broker, agent: g.agent, doors: g.doors,
	}
	k.agent.decide = k.serveControl
	plan, err := k.rules.plan(k.book.now())
	if err != nil {
		return ruled{}, err
	}
	err = k.rules.put(ctx, plan)
	switch {
	case errors.Is(err, firewall.ErrLeft):
		return ruled{}, fault.New(fault.Rules, "start a new container, with a network of its own", "apply the rules: %w", err)
	case err != nil:
		return ruled{}, fault.New(fault.Rules, kernelRemedy, "apply the rules: %w", err)
	}
	return ruled{k}, g.inside.forward()
}

func (b *base) awaitGuard(ctx context.Context, r ruled) (served, error) {
	r.guard.resolveAhead(wire.AheadFirst)
	bounded, cancel := context.WithTimeout(ctx, stage.StartTime)
	defer cancel()
	b.waitFor("the guard", stage.StartTime)
	select {
	case <-r.guard.ready:
	case <-bounded.Done():
		return served{}, fault.New(fault.Rules, "run it again with --log-level debug", "the guard did not start in time (%s)", b.status().Guard.Fault)
	}
	go r.maintain(context.WithoutCancel(ctx))
	return served(r), nil
}

func (b *base) proveConfinement(ctx context.Context, s served) (*keeper, error) {
	if err := s.agent.publishAgent(); err != nil {
		return nil, err
	}
	settings := s.book.policy().Settings
	inspects := len(settings.Inspected) > 0
	if inspects || settings.UpstreamProxy.Host != "" { // it is asked, or is the way to what is
		if err := s.broker.await(ctx); err != nil {
			return nil, err
		}
	}
	if inspects {
		s.broker.release()
	}
	if err := s.prove(ctx); err != nil {
		return nil, err
	}
	return s.keeper, s.broker.await(ctx) // which has started meanwhile
}
