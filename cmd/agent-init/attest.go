package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
)

// attest compares the live rules with the plan. A difference is recorded,
// mended, and shows in the status until a later look finds none.
func (k *keeper) attest(ctx context.Context) {
	err := k.verify(ctx)
	if err == nil {
		k.update(func(s *state) { s.Firewall.Fault, s.Firewall.Verified = "", time.Now() })
		return
	}
	if ctx.Err() != nil {
		return
	}
	k.log.Error("the live rules differ from the plan", "difference", err)
	k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "rules changed by somebody else: " + err.Error()})
	k.update(func(s *state) { s.Firewall.Fault = err.Error(); s.Firewall.Repairs++ })
	if err = k.repair(ctx); err == nil {
		err = k.verify(ctx)
	}
	if err != nil {
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "rules could not be repaired: " + err.Error()})
		k.update(func(s *state) { s.Firewall.Fault = err.Error() })
		return
	}
	k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Info, Reason: "rules repaired"})
	k.update(func(s *state) { s.Firewall.Fault, s.Firewall.Verified = "", time.Now() })
}

func (k *keeper) verify(ctx context.Context) error {
	if err := k.fw.Verify(ctx); err != nil {
		return err
	}
	foreign, err := k.foreignLeases(ctx)
	if err == nil && len(foreign) > 0 {
		err = fmt.Errorf("%s that the policy did not give, the first of them %s", counted(len(foreign), "lease", "leases"), foreign[0])
	}
	return err
}

// foreignLeases are the kernel's leases that are not in the book.
func (k *keeper) foreignLeases(ctx context.Context) ([]firewall.Element, error) {
	// Nothing is on its way between the book and the kernel meanwhile.
	k.leasing.Lock()
	defer k.leasing.Unlock()
	leases, err := k.fw.Leased(ctx)
	if err != nil {
		return nil, err
	}
	var out []firewall.Element
	for _, l := range leases {
		// The last moments are left out: the kernel's clock starts a little
		// after the book's, and what one name evicts runs out.
		if ending := l.TTL > 0 && l.TTL < lastMoments; !ending && !k.ledger.holds(l.Element) {
			out = append(out, l.Element)
		}
	}
	return out, nil
}

const lastMoments = 2 * time.Second

func (k *keeper) repair(ctx context.Context) error {
	if err := k.fw.Repair(ctx); err != nil {
		return err
	}
	foreign, err := k.foreignLeases(ctx)
	if err != nil {
		return err
	}
	if err := k.fw.Revoke(ctx, foreign); err != nil {
		return err
	}
	if err := k.leaseAll(ctx); err != nil {
		return err
	}
	return k.closeForeignFlows(ctx)
}

// leaseAll gives the kernel every lease of the book.
func (k *keeper) leaseAll(ctx context.Context) error {
	k.leasing.RLock()
	defer k.leasing.RUnlock()
	return k.fw.Lease(ctx, k.ledger.leases())
}

// closeForeignFlows ends every connection that the present policy would not let
// start: those of a shrunk policy, and those that began while somebody had
// changed the rules.
func (k *keeper) closeForeignFlows(ctx context.Context) error {
	if k.fw.Reduced() != "" {
		return nil // there are none but the guard's, who closes them by itself
	}
	flows, err := k.fw.Flows(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	local, err := localAddrs()
	if err != nil {
		return err
	}
	ups, err := k.upstreams(p)
	if err != nil {
		return err
	}
	return k.fw.Revoke(ctx, slices.DeleteFunc(flows, func(e firewall.Element) bool {
		port := policy.Port{Proto: policy.Proto(e.Proto), Number: e.Port}
		switch {
		case e.Addr.IsLoopback(): // the container itself
			return true
		case k.config.monitor && policy.Classify(e.Addr) != policy.Never:
			return true
		case local[e.Addr]:
			return slices.Contains(p.Settings().Inbound, port)
		case slices.ContainsFunc(ups, func(u resolver.Upstream) bool { return u.Addr.Addr().WithZone("") == e.Addr && u.Addr.Port() == e.Port }):
			return true
		}
		if d := p.DecideAddr(e.Addr, port); d.Rule != nil {
			return d.Allowed
		}
		return k.ledger.holds(e) || k.hostsAllow(p, e)
	}))
}

// hostsAllow says whether an allowed name of the hosts file stands for e.
func (k *keeper) hostsAllow(p *policy.Policy, e firewall.Element) bool {
	return slices.ContainsFunc(p.Static(), func(s policy.Static) bool {
		return s.Prefix.Contains(e.Addr) && uint8(s.Port.Proto) == e.Proto && s.Port.Number == e.Port
	})
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
