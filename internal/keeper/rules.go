package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// dropGroup is the NFLOG group of refused packets. Groups are the network namespace's, and so ours.
const dropGroup = 4100

// filter is the packet filter, as a keeper that serves uses it.
type filter interface {
	Apply(context.Context, firewall.Plan, []firewall.Lease) error
	Caveats(firewall.Plan) []string
	Verify(context.Context) error
	Repair(context.Context) error
	Watch(context.Context) (<-chan struct{}, error)

	Lease(context.Context, []firewall.Lease) error
	Drop(context.Context, []firewall.Element) error
	Revoke(context.Context, []firewall.Element) error
	RevokeAll(context.Context) error
	Retain(ctx context.Context, surplus []firewall.Element, wanted func(firewall.Element) bool) error
	Leased(ctx context.Context, wanted func(firewall.Lease) bool) ([]firewall.Lease, error)
	InUse(context.Context) ([]firewall.Use, error)
}

// rules owns the plan of what the kernel is to hold.
type rules struct {
	*base
	fw      filter
	reduced bool
	fixed   firewall.Config // the same for every policy
	gateway bool
	own     bool     // names are answered with the gateway's own addresses
	broker  identity // of the broker, if there is one

	eras    atomic.Uint32 // phases that there have been
	applied firewall.Plan // by put; one change at a time

	caveats []string // of the container, whatever the plan
}

// identity is what the rules know a process by, and where it answers.
type identity struct {
	uid, gid uint32           // 0, of a group: any is to count
	port     uint16           // on loopback, of both families
	at       []netip.AddrPort // instead, of a gateway
}

// newRules knows the guard and the broker by what is their own; that is the zero value where there is none.
func newRules(b *base, g guarded, broker identity) *rules {
	s := g.guard.sockets
	c := firewall.Config{
		GuardUID: g.agent.guardUID, AnyGroup: g.group.Any, GuardZone: g.fw.Zones, DropGroup: dropGroup,
		DNSPort4: s.dns4, DNSPort6: s.dns6, GatePort4: s.gate4, GatePort6: s.gate6,
		Observe: b.config.Monitor, AgentUID: g.agent.identity.UID, AnyAgent: b.shared(), Reduced: g.reduced,
	}
	if !c.AnyGroup {
		c.GuardGID = g.group.GID
	}
	if g.fw.Backend == "nftables" && policy.HostRoot() != "" {
		c.EngineUID = policy.OverflowUID
	}
	c.Inside = g.inside.plan(s.dns, s.gate, broker.at)
	r := &rules{base: b, fw: g.fw, reduced: g.reduced, fixed: c, gateway: g.inside != nil, own: len(g.inside.answers()) > 0, broker: broker, caveats: g.group.Caveats()}
	if r.gateway {
		r.caveats = append(r.caveats, g.inside.caveats...)
	}
	if g.reduced {
		r.caveats = append(r.caveats, "the agent has no ping sockets and no user namespaces")
	}
	return r
}

// plan turns a policy into what the kernel is to hold. No name appears in it.
func (r *rules) plan(f *inForce) (firewall.Plan, error) {
	if err := r.inspectable(f.policy.Settings.Inspected); err != nil {
		return firewall.Plan{}, err
	}
	if err := r.proxiable(f.policy); err != nil {
		return firewall.Plan{}, err
	}
	if r.gateway && len(f.policy.Settings.Inbound) > 0 {
		return firewall.Plan{}, fault.New(fault.Policy, "take inbound out of the policy, and connect to the agents from their own network",
			"a gateway lets nothing in to its agents, and the policy has inbound")
	}
	ups, err := upstream.Of(f.policy)
	if err != nil {
		return firewall.Plan{}, err
	}
	c := r.fixed
	c.Here = here(f.policy)
	if (f.bundle.Phases != nil || f.bundle.Phase != policy.Run) && !r.reduced { // inside gVisor the guard has all flows, and ends them
		c.Era = r.eras.Load() + 1
	}
	if r.own {
		c.Inside.Own = gatedPorts(f.policy)
	}
	if r.reduced {
		if err := reduce(&c, f.policy); err != nil {
			return firewall.Plan{}, err
		}
	}
	for _, u := range ups {
		c.Upstreams = append(c.Upstreams, netip.AddrPortFrom(u.Addr.Addr().WithZone(""), u.Addr.Port()))
	}
	for _, s := range f.policy.Static {
		if end := f.grants.Ends(s.Rule); !end.IsZero() {
			c.Granted = append(c.Granted, firewall.Grant{Entry: entry(s), Until: end})
		} else {
			c.Allow = append(c.Allow, entry(s))
		}
	}
	if !c.Observe {
		for _, s := range f.policy.Denied {
			c.Deny = append(c.Deny, entry(s))
		}
	}
	for _, never := range policy.NeverPrefixes() {
		c.Deny = append(c.Deny, firewall.Entry{Prefix: never})
	}
	if own := f.policy.Broker; own != nil && r.broker.uid != 0 {
		r.admitBroker(&c, own)
	}
	for _, in := range f.policy.Settings.Inbound {
		c.Inbound = append(c.Inbound, firewall.Entry{Proto: uint8(in.Proto), Port: in.Number})
	}
	return firewall.NewPlan(c)
}

// inspectable says why none of these names can be looked into: the broker would do it, and there is none.
func (r *rules) inspectable(names []route.Inspected) error {
	if len(names) == 0 || r.broker.uid != 0 {
		return nil
	}
	why, remedy := "there was neither a route nor an inspected name when agent-init was started", "start the container again to have it inspected"
	if r.reduced {
		why, remedy = insideGVisor.why, "use another runtime than gVisor, or take the words that are about requests from its entries"
	}
	return fault.New(fault.Policy, remedy, "%s:%d can't be inspected: %s", names[0].Name, names[0].Port, why)
}

// admitBroker has the rules know the broker, which may go where own allows.
func (r *rules) admitBroker(c *firewall.Config, own *policy.Policy) {
	c.BrokerUID, c.BrokerGID = r.broker.uid, r.broker.gid
	if len(r.broker.at) == 0 {
		c.BrokerPort4, c.BrokerPort6 = r.broker.port, r.broker.port
	}
	c.BrokerAllow, c.BrokerDeny = ofSender(own)
}

// ofSender is what own opens and denies by address.
func ofSender(own *policy.Policy) (allow, deny []firewall.Entry) {
	for _, s := range own.Static {
		allow = append(allow, entry(s))
	}
	for _, s := range own.Denied {
		deny = append(deny, entry(s))
	}
	for _, never := range policy.NeverPrefixes() {
		deny = append(deny, firewall.Entry{Prefix: never})
	}
	return allow, deny
}

func entry(s policy.Static) firewall.Entry {
	return firewall.Entry{Prefix: s.Prefix, Proto: uint8(s.Port.Proto), Port: s.Port.Number}
}

// put applies plan, and publishes what the backend can't do of it. That the kernel still holds a plan that was applied is
// for attest to see: a look at all of it would delay the denial of a name, with which no plan changes.
func (r *rules) put(ctx context.Context, plan firewall.Plan) error {
	if reflect.DeepEqual(plan, r.applied) {
		return nil
	}
	r.applied = firewall.Plan{} // after an error it is not known
	if err := r.fw.Apply(ctx, plan, nil); err != nil {
		return err
	}
	r.applied = plan
	caveats := append(r.fw.Caveats(plan), r.caveats...)
	for _, c := range caveats {
		r.log.Info("the packet filter is weaker than it could be", "backend", r.status().Firewall.Backend, "what", c)
	}
	r.update(func(s *state.State) { s.Firewall.Caveats = caveats })
	return nil
}

// openDrops opens the log of refused packets. Where the kernel has none, the guard gets a file without a line.
func openDrops(reduced bool, group uint16) (*os.File, error) {
	if reduced {
		return os.Open(os.DevNull)
	}
	return firewall.OpenDropLog(group)
}

// attest compares the live rules with the plan. A difference is recorded,
// mended, and shows in the status until a later look finds none.
func (k *keeper) attest(ctx context.Context) {
	verify := func() error {
		if err := k.rules.fw.Verify(ctx); err != nil {
			return err
		}
		return k.leases.verify(ctx)
	}
	fine := func(s *state.State) { s.Firewall.Fault, s.Firewall.Verified = "", time.Now() }
	err := verify()
	if err == nil {
		k.update(fine)
		return
	}
	if ctx.Err() != nil {
		return
	}
	k.log.Error("the live rules differ from the plan", "difference", err)
	k.guardian(audit.Fault, "rules changed by somebody else: "+err.Error())
	k.update(func(s *state.State) { s.Firewall.Fault = err.Error(); s.Firewall.Repairs++ })
	if err = k.rules.fw.Repair(ctx); err == nil {
		err = k.leases.repair(ctx)
	}
	if err == nil {
		err = verify()
	}
	if err != nil {
		k.guardian(audit.Fault, "rules could not be repaired: "+err.Error())
		k.update(func(s *state.State) { s.Firewall.Fault = err.Error() })
		return
	}
	k.guardian(audit.Info, "rules repaired")
	k.update(fine)
}

// The reduced form is for kernels that hold neither sets nor states: gVisor's. There everything that the policy may
// allow goes to the guard, which asks the keeper's book and connects onward; see
// pkg/firewall/internal/plan/reduced.go. What can't be held that way is refused when the policy is read.
//
// The agent gets no ping sockets, since no rule tells an echo from neighbour discovery, and no user namespaces:
// whether capabilities of such a namespace change the rules of another is gVisor's to decide, in each version anew.

// insideGVisor there are no sets, so nothing could be leased to the broker alone.
var insideGVisor = hindrance{"inside gVisor nothing can tell the broker's connections from the agent's",
	"use another runtime than gVisor, or have the agent hold the key: take the route out of policy.yaml"}

// reducible says what of p no reduced form can hold.
func reducible(p *policy.Policy) error {
	var out []string
	for r := range p.Rules() {
		for _, port := range r.Ports {
			if !r.Deny && port.Proto != policy.TCP {
				out = append(out, fmt.Sprintf("%s: %s: nothing but TCP can be let through inside gVisor", r.Source, r))
			}
		}
	}
	for _, port := range p.Settings.Inbound {
		if port.Proto != policy.TCP {
			out = append(out, fmt.Sprintf("inbound: %s: nothing but TCP can be let in inside gVisor", port))
		}
	}
	if len(out) == 0 {
		return nil
	}
	const most = 20
	if n := len(out) - most; n > 0 {
		out = append(out[:most], fmt.Sprintf("and %d more", n))
	}
	return errors.New(strings.Join(out, "\n"))
}

// gatedPorts are the ports of names. The gate looks into 80 and 443, and asks the book about the others.
func gatedPorts(p *policy.Policy) []uint16 {
	out := []uint16{policy.HTTP.Number, policy.HTTPS.Number}
	for r := range p.Rules() {
		for _, port := range r.Ports {
			if !r.Deny && r.Name != "" {
				out = append(out, port.Number)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// relayedPorts are those on which the gate accepts whatever comes: of names, and of addresses.
func relayedPorts(p *policy.Policy) []uint16 {
	out := gatedPorts(p)
	for _, s := range p.Static {
		out = append(out, s.Port.Number)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reduce makes c the configuration of a reduced plan, if p can be held by one.
func reduce(c *firewall.Config, p *policy.Policy) error {
	if c.Observe {
		return fault.New(fault.Usage, "start with --mode enforce, or use another runtime", "--mode monitor needs a packet filter that logs, and gVisor's does not")
	}
	if err := reducible(p); err != nil {
		return fault.New(fault.Policy, "take these entries out, or use another runtime than gVisor", "the packet filter can't hold this policy\n%w", err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fault.New(fault.Rules, "let netlink sockets be opened in the container (socket(2), AF_NETLINK)", "list this container's addresses: %w", err)
	}
	for _, a := range addrs {
		if local, err := netip.ParsePrefix(a.String()); err == nil {
			c.Local = append(c.Local, local)
		}
	}
	c.Relayed, c.DropGroup = gatedPorts(p), 0
	return nil
}
