package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// step is one thing that must succeed before the agent may start.
type step struct {
	name string
	part string // of the start, as it is shown to a person
	do   func(context.Context) error
}

// steps is the whole of the start, in order. Any failure ends it, and what was
// sealed stays sealed.
func (k *keeper) steps() []step {
	return []step{
		{"check the container", "check the container", k.checkContainer}, // nothing has been touched yet
		{"find who could replace agent-init", "check the container", k.checkProgramPath},
		{"seal the network", "seal the network", k.seal},                       // from here on nothing leaves; older flows are forgotten
		{"prepare the runtime directory", "read the policy", k.openRuntime},    // one keeper only; state and audit log
		{"read the policy", "read the policy", k.loadPolicy},                   // trusted files, owned by root
		{"open the control sockets", "read the policy", k.openSockets},         // nobody is served yet
		{"find the agent's user", "read the policy", k.findUser},               //
		{"give up what is not needed", "read the policy", k.harden},            // before anything untrusted runs
		{"start the guard", "start the guard", k.startGuard},                   // it reads the policy while the rules are applied
		{"apply the rules", "apply the rules", k.applyRules},                   // one transaction
		{"wait for the guard", "wait for the guard", k.awaitGuard},             // names are answered from here on
		{"prove the confinement", "prove the confinement", k.proveConfinement}, // from the agent's side, with its credentials
	}
}

// boot runs the steps. Its error is a fault that says which of them failed.
func (k *keeper) boot(ctx context.Context) error {
	started := time.Now()
	if k.config.Monitor {
		k.announceMonitor(os.Stderr)
	}
	// A start is too short to be worth collecting in. What it leaves behind goes
	// back to the system while the agent starts.
	debug.SetGCPercent(-1)
	defer func() {
		debug.SetGCPercent(stage.SmallHeap)
		go debug.FreeOSMemory()
		stage.Settle()
	}()
	for _, s := range k.steps() {
		begun := time.Now()
		k.progress.enter(s.part)
		if err := s.do(ctx); err != nil {
			k.progress.failed()
			f := container.Scarce(k.launch, err, s.name)
			if f == nil {
				f = fault.Of(err, s.name)
			}
			k.fail(f)
			return f
		}
		k.log.Info(s.name, "took", time.Since(begun).Round(10*time.Microsecond))
	}
	stage.SpawnThreads()
	k.guard.resolveAhead(wire.AheadAll)
	// Whoever hears that it is ready finds everything in its place.
	published := k.publishAll()
	k.update(func(s *state.State) { s.Phase = state.PhaseReady })
	k.publish()
	go k.operate(context.WithoutCancel(ctx), published)
	if k.config.Monitor {
		k.progress.done("ready, NOT CONFINED")
	} else {
		k.progress.done("confined, in all")
	}
	k.log.Info("confined", "took", time.Since(started).Round(10*time.Microsecond))
	return nil
}

// fail publishes why there is no agent.
func (k *keeper) fail(f *fault.Fault) {
	f.Remedy = k.launch.Spell(f.Remedy, k.config.IsSetting)
	k.update(func(s *state.State) { s.Phase, s.Reason, s.Code = state.PhaseFailed, f.Error(), f.Code })
	k.publish()
	k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "not started: " + text.InOneLine(f)})
}

// newKeeper takes no action on the system but becoming the reaper.
func newKeeper(c Config, mode string, log *slog.Logger) (*keeper, error) {
	here := fault.LaunchHere(c.Environ)
	if err := container.CheckLimits(here); err != nil {
		return nil, err
	}
	r, err := reaper.New(log)
	if err != nil {
		return nil, err
	}
	k := &keeper{config: c, launch: here, log: log, reaper: r, record: audit.Discard, budgets: newBudgets()}
	k.state = state.State{Version: 1, Phase: state.PhaseStarting, Mode: mode, Monitor: c.Monitor, Keeper: state.Self(), Started: time.Now()}
	return k, nil
}

func (k *keeper) checkRoot(context.Context) error {
	if os.Geteuid() == 0 {
		return nil
	}
	if dir, err := state.Find(); err == nil {
		var s state.State
		if dir.Read(state.StatusFile, &s) == nil && s.Keeper.Alive() && s.Mode == "run" {
			return fault.New(fault.Privilege, "give the entrypoint the command alone (docker run … IMAGE claude); its flags are variables: -e AGENT_INIT_SESSION=always",
				"agent-init runs here already, as the container's entrypoint, and has started this as its agent (uid %d)", os.Geteuid())
		}
	}
	return fault.New(fault.Privilege, "start the container as root (no --user); agent-init drops to the agent's user itself",
		"agent-init %s needs root, and runs as uid %d", k.state.Mode, os.Geteuid())
}

func (k *keeper) checkContainer(ctx context.Context) error {
	if err := k.checkRoot(ctx); err != nil {
		return err
	}
	need := append([]int{unix.CAP_NET_ADMIN}, privdrop.ExecCapabilities()...)
	if strings.HasPrefix(k.config.Backend, "xtables") {
		need = append(need, unix.CAP_NET_RAW)
	}
	if err := k.requireAll(need); err != nil {
		return err
	}
	k.warnOfEngines()
	// A keeper at work would be disturbed by what comes before the lock.
	if dir, err := state.Find(); err == nil && dir.Kept() {
		return alreadyKept(dir, unix.EWOULDBLOCK)
	}
	// Programs of a pod or of a running devcontainer may listen already; a
	// container that only now starts has none of its own.
	shared := k.state.Mode != "run" || os.Getpid() != 1
	if err := firewall.CheckNamespace(firewall.NamespaceOptions{Shared: shared}); err != nil {
		return fault.New(fault.Rules, "start the container with a network of its own (no --network host); for one that containers share, use agent-init sidecar", "%w", err)
	}
	if seen := container.ForeignProcesses("/proc"); seen != "" {
		return fault.New(fault.Rules, container.PidRemedy, "the agent could look into processes that are not the container's: %s", seen)
	}
	return nil
}

const kernelRemedy = "use a kernel with nf_tables, or with ip_set and the package iptables in the image, for IPv4 and IPv6; see docs/platforms.md"

func (k *keeper) seal(ctx context.Context) error {
	// The table outlives the process only if PID 1 can't be outlived: in the
	// other modes a later keeper must be able to take it over.
	owner := k.state.Mode == "run" && os.Getpid() == 1
	fw, err := firewall.Open(ctx, firewall.Options{Backend: k.config.Backend, Owner: owner, Run: k.runProgram, LockFile: xtablesLock(k.state.Mode), Log: k.log})
	if err == nil {
		k.fw = fw
		err = fw.Seal(ctx)
	}
	switch {
	case errors.Is(err, firewall.ErrPermission):
		return fault.New(fault.Privilege, k.launch.Capabilities("NET_ADMIN"), "%w", err)
	case errors.Is(err, firewall.ErrRaw):
		return fault.New(fault.Privilege, k.launch.Capabilities("NET_RAW")+"; or use --backend nftables", "%w", err)
	case err != nil:
		return fault.New(fault.Rules, kernelRemedy, "seal the network: %w", err)
	}
	k.update(func(s *state.State) {
		s.Firewall.Backend, s.Firewall.Why, s.Firewall.Reduced = fw.Backend(), fw.Why(), fw.Reduced()
	})
	// An earlier keeper of this network namespace may have leased what the
	// policy no longer allows.
	if err := fw.RevokeAll(ctx); err != nil {
		return fault.New(fault.Rules, "report this with the container's run line", "end older leases: %w", err)
	}
	// While everything is sealed, nothing that is forgotten can come back.
	if err := fw.FlushConntrack(ctx); err != nil {
		return fault.New(fault.Rules, "use a kernel with nf_conntrack_netlink (CONFIG_NF_CT_NETLINK)", "forget older connections: %w", err)
	}
	return nil
}

func (k *keeper) openRuntime(context.Context) error {
	dir, err := state.Make(k.state.Mode)
	if err != nil {
		return fault.New(fault.Rules, "mount a tmpfs at /run (docker: --tmpfs /run; kubernetes: an emptyDir at /run/agent-init, of this container alone)", "no directory for the runtime state can be written: %w", err)
	}
	if k.lock, err = dir.Lock(); err != nil {
		return alreadyKept(dir, err)
	}
	k.dir = dir
	k.publish()
	if k.resolv, err = upstream.ReadConf("/etc/resolv.conf"); err != nil {
		k.log.Warn("no upstream DNS servers from resolv.conf", "error", err)
	}
	k.resolv = k.chooseServers(k.resolv)
	return nil
}

// openAudit falls back to the runtime directory on a read-only root, and says so
// in the status: such a log is gone with the container.
func (k *keeper) openAudit(o audit.Options) error {
	var errs []error
	for _, dir := range []string{state.AuditDir, string(k.dir) + "/log"} {
		o.Dir = dir
		l, err := audit.Open(o)
		if err == nil {
			k.audit = l
			go func() {
				for range l.Changed() { // who asks for the status is told at once
					k.publish()
				}
			}()
			limiter := audit.NewLimiter(l.Write)
			go limiter.Run(context.Background())
			k.record, k.flush = limiter.Record, limiter.Flush
			k.update(func(s *state.State) { s.Audit.File = dir + "/" + audit.FileName })
			return nil
		}
		errs = append(errs, err)
	}
	return fault.New(fault.Rules, "mount a directory that belongs to root at "+state.AuditDir, "no audit log can be written: %w", errors.Join(errs...))
}

func (k *keeper) loadPolicy(context.Context) error {
	b, p, err := k.readPolicy()
	var o audit.Options
	if err == nil {
		log := p.Settings().Log
		if o.MaxSize, o.Files = log.MaxSize, log.Files; log.Stdout {
			o.Mirror = os.Stdout
		}
	}
	if e := k.openAudit(o); e != nil {
		return e
	}
	if err != nil {
		return err
	}
	if k.edition, err = wire.NewEdition(); err != nil {
		return err
	}
	k.files, k.bundle, k.policy, k.ledger = b, b, p, lease.New(p, k.edition)
	for _, w := range p.Warnings() {
		k.log.Warn(w.Error())
	}
	k.recordPolicy(p, "policy loaded")
	if k.config.Monitor {
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "NOT CONFINED: started with --mode monitor"})
	}
	return nil
}

func (k *keeper) findUser(context.Context) error {
	spec := k.config.User
	if u := k.policy.Settings().User; spec == "auto" && u != "" {
		spec = u
	}
	id, err := privdrop.Lookup(privdrop.LookupOptions{
		Spec: spec, HostUID: k.config.HostUID, HostGID: k.config.HostGID, Workspace: stage.Workspace, Log: k.log,
	})
	if err != nil {
		return fault.New(fault.Usage, "create the user in the image, or name one with --user", "%w", err)
	}
	if k.fw != nil { // else there is no guard
		if k.guardUID, err = stage.ChooseUID("the guard", id.UID); err != nil {
			return err
		}
	}
	if k.guardGroup, err = stage.ChooseGroup(k.guardUID, id); err != nil {
		return fmt.Errorf("find a group for the guard: %w", err)
	}
	for _, c := range k.guardGroup.Caveats() {
		k.log.Warn(c)
	}
	k.identity = id
	k.warnOfAccount(privdrop.EnsureAccount(id, privdrop.AccountOptions{}))
	k.warnOfWorkspace(stage.Workspace)
	k.update(func(s *state.State) { s.Agent = state.Agent{User: id.Name, UID: id.UID}; s.Guard.UID = k.guardUID })
	return nil
}

// keeperCaps are what the keeper goes on using: the rules, and the starting and
// ending of processes under other uids.
var keeperCaps = []int{unix.CAP_NET_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_KILL}

func (k *keeper) harden(context.Context) error {
	keep := keeperCaps
	if k.fw != nil && strings.HasPrefix(k.fw.Backend(), "xtables") { // iptables opens raw sockets
		keep = append(slices.Clone(keep), unix.CAP_NET_RAW)
	}
	if err := privdrop.Harden(keep...); err != nil {
		return fault.New(fault.Privilege, "report this with the container's run line", "give up capabilities: %w", err)
	}
	if c := stage.OomCaveat(); c != "" {
		k.log.Warn(c)
	}
	return nil
}

// startGuard starts the first guard ahead of the rules, since both take a while.
// Sealed in, it can reach nobody yet.
func (k *keeper) startGuard(ctx context.Context) error {
	var err error
	if k.sockets, err = openGuardSockets(ctx); err != nil {
		return err
	}
	// The log of refused packets stays the keeper's while guards come and go.
	if k.drops, err = k.openDrops(); err != nil {
		return fault.New(fault.Rules, "use a kernel with nfnetlink_log (CONFIG_NETFILTER_NETLINK_LOG)", "open the log of refused packets: %w", err)
	}
	if err := k.openFinding(); err != nil {
		return err
	}
	k.guard = newGuardKeeper(k)
	k.guard.service.Begin()
	return nil
}

func (k *keeper) applyRules(ctx context.Context) error {
	plan, err := k.plan(k.policy, grant.Book{})
	if err != nil {
		return err
	}
	if err := k.putRules(ctx, plan, nil); err != nil {
		return fault.New(fault.Rules, kernelRemedy, "apply the rules: %w", err)
	}
	return nil
}

// putRules applies plan, and publishes what the backend can't do of it.
func (k *keeper) putRules(ctx context.Context, plan firewall.Plan, leases []firewall.Lease) error {
	if err := k.fw.Apply(ctx, plan, leases); err != nil {
		return err
	}
	caveats := append(k.fw.Caveats(plan), k.caveats()...)
	for _, c := range caveats {
		k.log.Info("the packet filter is weaker than it could be", "backend", k.fw.Backend(), "what", c)
	}
	k.update(func(s *state.State) { s.Firewall.Caveats = caveats })
	return nil
}

func (k *keeper) awaitGuard(ctx context.Context) error {
	k.guard.resolveAhead(wire.AheadFirst)
	if err := k.guard.await(ctx); err != nil {
		var why string
		k.update(func(s *state.State) { why = s.Guard.Fault })
		return fault.New(fault.Rules, "start it with --log-level debug, which says more", "%w (%s)", err, why)
	}
	go k.maintain(context.WithoutCancel(ctx))
	return nil
}

func (k *keeper) proveConfinement(ctx context.Context) error {
	plan := k.selfTestPlan()
	if err := k.dir.Write(state.ProbesFile, 0o644, plan); err != nil {
		return err
	}
	if err := k.publishAgent(); err != nil {
		return err
	}
	if k.config.Selftest == "off" {
		k.log.Warn("the self-test is off: nothing was proved")
		return nil
	}
	report, err := k.runSelfTest(ctx, plan, false)
	if err != nil {
		return fault.New(fault.SelfTest, "start it with --log-level debug, which says more", "the self-test could not be run: %w", err)
	}
	k.noteSelfTest(report)
	if report.OK {
		k.record(audit.Event{Kind: audit.SelfTest, Verdict: audit.Info, Reason: "passed: " + sizeOfReport(report)})
		return nil
	}
	failures := report.Failures()
	k.record(audit.Event{Kind: audit.SelfTest, Verdict: audit.Fault, Reason: "failed: " + strings.Join(failures, "; ")})
	if k.config.Selftest == "warn" {
		k.log.Warn("the self-test failed; going on because of --selftest warn", "failures", failures)
		return nil
	}
	return fault.New(fault.SelfTest, "mend what is named, or take the word required from entries that may be down; to start all the same: --selftest warn",
		"self-test failed, the agent was not started: %s", strings.Join(failures, "; "))
}
