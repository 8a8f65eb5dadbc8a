package main

import (
	"context"
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

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/resolver"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// dropGroup is the NFLOG group of refused packets. Groups belong to a network
// namespace, which agent-init has to itself.
const dropGroup = 4100

// keeper owns what needs CAP_NET_ADMIN: the kernel's rules, and the book of
// leases that go into them. It reads nothing from the network; what it takes
// from the guard is of fixed size and judged by its own copy of the policy.
type keeper struct {
	config   config
	log      *slog.Logger
	progress *progress // nil: nobody watches the start
	dir      runtimeDir
	fw       *firewall.Firewall
	lock     *os.File // held for as long as this is the keeper
	audit    *audit.Log
	record   audit.Recorder
	flush    func() // what the recorder holds back
	reaper   *reaper.Reaper
	sockets  *guardSockets
	drops    *os.File // the log of refused packets
	edition  *edition // of the ledger
	resolv   resolvConf
	guardUID uint32
	identity privdrop.Identity // the agent's
	guard    *guardKeeper
	sessions *sessionKeeper // nil: no session
	ledger   *ledger
	probing  probing
	diag     *os.File           // where the guard looks sockets up
	scanner  *sockowner.Scanner // nil: processes can't be looked at
	scans    pace

	// leasing is held for reading while a lease goes from the ledger to the
	// kernel, and for writing while the policy changes: no lease of the old
	// policy can arrive after the new one has closed it.
	leasing sync.RWMutex

	reloading  sync.Mutex     // one reload, or change of grants, at a time
	files      *policy.Bundle // the files of the policy; reloading's own
	watched    watched        // reloading's own
	publishing sync.Mutex     // one writer of published files at a time
	owed       atomic.Bool    // of those, one could not be written

	controls *net.UnixListener // for root
	metrics  *net.UnixListener // for root
	requests *os.File          // the agent's, listened to by the guard

	mu     sync.Mutex
	bundle *policy.Bundle // files and grants
	policy *policy.Policy // of the bundle
	grants grantBook      // changed under reloading only
	state  state
}

// upstreams are the servers that the guard may ask.
func (k *keeper) upstreams(p *policy.Policy) ([]resolver.Upstream, error) {
	return upstreams(p, k.resolv.servers)
}

// plan turns a policy into what the kernel is to hold. No name appears in it.
func (k *keeper) plan(p *policy.Policy) (firewall.Plan, error) {
	ups, err := k.upstreams(p)
	if err != nil {
		return firewall.Plan{}, err
	}
	c := firewall.Config{
		GuardUID: k.guardUID, DropGroup: dropGroup,
		DNSPort4: k.sockets.dns4, DNSPort6: k.sockets.dns6,
		GatePort4: k.sockets.gate4, GatePort6: k.sockets.gate6, Gated: []uint16{http.Number, https.Number},
		Observe: k.config.monitor,
	}
	if k.fw.Reduced() != "" {
		if err := k.reduce(&c, p); err != nil {
			return firewall.Plan{}, err
		}
	}
	for _, u := range ups {
		c.Upstreams = append(c.Upstreams, netip.AddrPortFrom(u.Addr.Addr().WithZone(""), u.Addr.Port()))
	}
	for _, s := range p.Static() {
		c.Allow = append(c.Allow, entry(s))
	}
	for _, s := range p.Denied() {
		if c.Observe {
			break
		}
		c.Deny = append(c.Deny, entry(s))
	}
	for _, never := range policy.NeverPrefixes() {
		c.Deny = append(c.Deny, firewall.Entry{Prefix: never})
	}
	for _, in := range p.Settings().Inbound {
		c.Inbound = append(c.Inbound, firewall.Entry{Proto: uint8(in.Proto), Port: in.Number})
	}
	return firewall.NewPlan(c)
}

func entry(s policy.Static) firewall.Entry {
	return firewall.Entry{Prefix: s.Prefix, Proto: uint8(s.Port.Proto), Port: s.Port.Number}
}

// lease serves one request of the guard: the addresses are open in the kernel
// before the answer is sent.
func (k *keeper) lease(ctx context.Context, m message) message {
	reply := message{op: opLease, id: m.id}
	// What was booked reaches the kernel, or is unbooked, also if the guard that
	// asked has ended meanwhile.
	whole := context.WithoutCancel(ctx)
	k.leasing.RLock()
	defer k.leasing.RUnlock()
	ctx, cancel := context.WithTimeout(whole, leaseTime)
	defer cancel()
	reply.edition, reply.ttl = k.edition.Load(), leaseTTL(m.ttl)
	open, admitted := k.ledger.grant(m.name, m.addrs, m.ttl)
	if len(open) == 0 {
		return reply
	}
	if err := k.fw.Lease(ctx, open); err != nil {
		k.log.Error("leasing", "name", m.name, "error", err)
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Name: m.name, Reason: "the kernel refused the lease: " + err.Error()})
		ctx, cancel := context.WithTimeout(whole, leaseTime) // of the first there may be nothing left
		defer cancel()
		k.revoke(ctx, k.ledger.revokeName(m.name))
		reply.err = true
		return reply
	}
	reply.addrs = admitted
	return reply
}

// held answers the name gate: does the book have this address for this name?
func (k *keeper) held(m message) message {
	reply := message{op: opHeld, id: m.id, err: true}
	if len(m.addrs) == 1 {
		var left time.Duration
		left, reply.edition = k.ledger.leasedTo(m.name, firewall.Element{Addr: m.addrs[0], Proto: uint8(policy.TCP), Port: m.port})
		reply.err, reply.ttl = left == 0, left
	}
	return reply
}

// direct answers it about what it can't look into: does the policy allow this
// address by itself, or does the book have it for any name?
func (k *keeper) direct(m message) message {
	reply := message{op: opDirect, id: m.id, err: true}
	if len(m.addrs) != 1 {
		return reply
	}
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	if p.DecideAddr(m.addrs[0], policy.Port{Proto: policy.TCP, Number: m.port}).Allowed {
		reply.err = false
		return reply
	}
	if name := k.ledger.holder(firewall.Element{Addr: m.addrs[0], Proto: uint8(policy.TCP), Port: m.port}); name != "" {
		reply.name, reply.err = name, false
	}
	return reply
}

// leaseTime is what the kernel may take over a lease.
const leaseTime = 5 * time.Second

func (k *keeper) revoke(ctx context.Context, elements []firewall.Element) {
	if len(elements) == 0 {
		return
	}
	if err := k.fw.Revoke(ctx, elements); err != nil {
		// The next attestation finds what the book does not hold.
		k.log.Error("revoking", "error", err)
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "revoking failed: " + err.Error()})
	}
}

// Renewal looks ahead further than it sleeps, so that no lease in use can end
// between two looks.
const (
	renewEvery  = 15 * time.Second
	renewWindow = 45 * time.Second
	renewFor    = 2 * time.Minute
	attestEvery = 10 * time.Second
	sweepEvery  = time.Second
)

// maintain keeps leases that are in use, forgets the others, and holds the live
// rules against the plan, until ctx ends.
func (k *keeper) maintain(ctx context.Context) {
	changed, err := k.fw.Watch(ctx)
	if err != nil {
		k.log.Warn("rule changes are noticed by the clock only", "error", err)
	}
	renew, attest, sweep := time.NewTicker(renewEvery), time.NewTicker(attestEvery), time.NewTicker(sweepEvery)
	defer renew.Stop()
	defer attest.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			k.ledger.sweep()
		case <-renew.C:
			k.renew(ctx)
		case <-attest.C:
			k.attest(ctx)
			k.audit.Retry()
			k.publish()
		case _, ok := <-changed:
			if !ok {
				changed = nil
				continue
			}
			k.attest(ctx)
			k.publish()
		}
	}
}

func (k *keeper) renew(ctx context.Context) {
	due := k.ledger.renewable(renewWindow)
	if len(due) == 0 {
		return
	}
	flows, err := k.fw.Flows(ctx)
	if err != nil {
		k.log.Warn("looking for leases in use", "error", err)
		return
	}
	flows = slices.DeleteFunc(flows, func(e firewall.Element) bool { return !due[e] })
	k.leasing.RLock()
	defer k.leasing.RUnlock()
	if leases := k.ledger.renew(flows, renewFor); len(leases) > 0 {
		if err := k.fw.Lease(ctx, leases); err != nil {
			k.log.Warn("renewing leases", "error", err)
		}
	}
}

func localAddrs() (map[netip.Addr]bool, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the own addresses: %w", err)
	}
	out := map[netip.Addr]bool{}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out[p.Addr().Unmap()] = true
		}
	}
	return out, nil
}

// readPolicy loads the files of the configuration directory.
func (k *keeper) readPolicy() (*policy.Bundle, *policy.Policy, error) {
	const remedy = "see agent-init check, and correct the entries"
	k.watched.loaded = filesState(k.config.dir) // before: a change meanwhile is noticed
	b, err := policy.Read(policy.ReadOptions{Dir: k.config.dir, HostsFile: hostsFile})
	if err != nil {
		return nil, nil, readFault(err)
	}
	p, err := policy.Parse(b, presets())
	if err != nil {
		return nil, nil, faultf(exitPolicy, remedy, "the policy has errors\n%w", err)
	}
	if _, err := k.upstreams(p); err != nil {
		return nil, nil, err
	}
	return b, p, nil
}

// reload takes over a changed policy: the kernel first, so that nothing is open
// that the new policy denies, then the guard. A policy that can't be read
// leaves the old one in force.
func (k *keeper) reload(ctx context.Context) error {
	k.reloading.Lock()
	defer k.reloading.Unlock()
	b, p, err := k.readPolicy()
	if err == nil {
		err = k.adoptFiles(ctx, b, p)
	}
	if err != nil {
		k.log.Error("the policy was not reloaded; the old one stays", "error", err)
		k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Fault, Reason: "reload failed, the old policy stays: " + inOneLine(err)})
		k.update(func(s *state) { s.Policy.Fault = err.Error(); s.Policy.Attempts++ })
	}
	k.publish()
	return err
}

// adoptFiles is adopt of what was read from files, with the grants on top.
func (k *keeper) adoptFiles(ctx context.Context, files *policy.Bundle, p *policy.Policy) error {
	k.mu.Lock()
	b := k.grants.over(files)
	k.mu.Unlock()
	if len(b.Files) > len(files.Files) {
		var err error
		if p, err = policy.Parse(b, presets()); err != nil {
			return fmt.Errorf("join grants and policy: %w", err)
		}
	}
	err := k.adopt(ctx, b, p)
	if k.inForce(b) {
		k.files = files
		k.recordPolicy(p, "policy reloaded")
		k.publishPolicy(p)
	}
	return err
}

func (k *keeper) inForce(b *policy.Bundle) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bundle == b
}

// adopt brings a policy into force, and returns when the guard has it too, or is
// late. Only an error before that leaves the old one.
func (k *keeper) adopt(ctx context.Context, b *policy.Bundle, p *policy.Policy) error {
	plan, err := k.plan(p)
	if err != nil {
		return err
	}
	if err := k.applyPlan(ctx, plan, p); err != nil {
		return err
	}
	k.mu.Lock()
	k.bundle, k.policy = b, p
	k.mu.Unlock()
	if k.ready() { // explain shows no lease that has just ended
		k.publishLeases(^uint64(0))
	}
	// The guard ends its connections first, since without their flows neither
	// side would hear of it. It is not waited for longer than a moment.
	k.guard.awaitTaken(k.guard.push())
	if err := k.closeForeignFlows(ctx); err != nil {
		// Which flows are to end can't be told: so all do.
		k.log.Error("closing what the policy no longer allows; all connections are closed", "error", err)
		if err := k.fw.FlushConntrack(ctx); err != nil {
			return fmt.Errorf("the new policy is in force, but connections of the old one may live on: %w", err)
		}
	}
	return nil
}

func (k *keeper) applyPlan(ctx context.Context, plan firewall.Plan, p *policy.Policy) error {
	k.leasing.Lock()
	defer k.leasing.Unlock()
	k.mu.Lock()
	old := k.policy
	k.mu.Unlock()
	closed := k.ledger.adopt(p)
	if err := k.fw.Unlease(ctx, closed); err != nil {
		// The kernel keeps its leases when it gets new rules. If some can't be
		// taken out, none may stay; those of the book are given again.
		if err := k.fw.RevokeAll(ctx); err != nil {
			k.ledger.adopt(old)
			return fmt.Errorf("end the leases that the policy no longer allows: %w", err)
		}
	}
	if err := k.putRules(ctx, plan, k.ledger.leases()); err != nil {
		k.ledger.adopt(old)
		return fmt.Errorf("apply the rules: %w", err)
	}
	return nil
}

func (k *keeper) recordPolicy(p *policy.Policy, what string) {
	c := p.Counts()
	k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Info,
		Reason: fmt.Sprintf("%s: %d names, %d wildcards, %d addresses, %d denied", what, c.Names, c.Wildcards, c.Addresses, c.Denied)})
	k.update(func(s *state) { s.Policy = policyState{Counts: c, Attempts: s.Policy.Attempts + 1, Loaded: time.Now()} })
}

// close leaves the rules in place: nothing opens on the way out.
func (k *keeper) close() error {
	var errs []error
	if k.sessions != nil {
		k.sessions.stop()
	}
	if k.guard != nil {
		k.guard.stop()
	}
	if k.fw != nil {
		errs = append(errs, k.fw.Close())
	}
	if k.flush != nil {
		k.flush()
	}
	if k.audit != nil {
		errs = append(errs, k.audit.Close())
	}
	if k.controls != nil {
		errs = append(errs, k.controls.Close(), k.metrics.Close())
	}
	return errors.Join(errs...)
}
