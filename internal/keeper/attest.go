package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
)

// attest compares the live rules with the plan. A difference is recorded,
// mended, and shows in the status until a later look finds none.
func (k *keeper) attest(ctx context.Context) {
	err := k.verify(ctx)
	if err == nil {
		k.update(func(s *state.State) { s.Firewall.Fault, s.Firewall.Verified = "", time.Now() })
		return
	}
	if ctx.Err() != nil {
		return
	}
	k.log.Error("the live rules differ from the plan", "difference", err)
	k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "rules changed by somebody else: " + err.Error()})
	k.update(func(s *state.State) { s.Firewall.Fault = err.Error(); s.Firewall.Repairs++ })
	if err = k.repair(ctx); err == nil {
		err = k.verify(ctx)
	}
	if err != nil {
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "rules could not be repaired: " + err.Error()})
		k.update(func(s *state.State) { s.Firewall.Fault = err.Error() })
		return
	}
	k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Info, Reason: "rules repaired"})
	k.update(func(s *state.State) { s.Firewall.Fault, s.Firewall.Verified = "", time.Now() })
}

func (k *keeper) verify(ctx context.Context) error {
	if err := k.fw.Verify(ctx); err != nil {
		return err
	}
	foreign, err := k.foreignLeases(ctx)
	if err == nil && len(foreign) > 0 {
		err = fmt.Errorf("%s that the policy did not give, the first of them %s", text.Counted(len(foreign), "lease", "leases"), foreign[0])
	}
	return err
}

// foreignLeases are the kernel's leases that are not in the book, and what it lets go on
// without one.
func (k *keeper) foreignLeases(ctx context.Context) ([]firewall.Element, error) {
	foreign, err := k.unbooked(ctx)
	if err != nil || len(foreign) == 0 {
		return nil, err
	}
	// Some may be on their way between the book and the kernel. While none is, there can
	// be no new lease, so this is not where every look begins.
	k.leasing.Lock()
	defer k.leasing.Unlock()
	return k.unbooked(ctx)
}

// unbooked looks for them once.
func (k *keeper) unbooked(ctx context.Context) ([]firewall.Element, error) {
	leases, err := k.fw.Leased(ctx)
	if err != nil {
		return nil, err
	}
	used, err := k.fw.InUse(ctx)
	if err != nil {
		return nil, err
	}
	var out []firewall.Element
	for _, l := range leases {
		// The last moments are left out: the kernel's clock starts a little
		// after the book's, and what one name evicts runs out.
		if ending := l.TTL > 0 && l.TTL < lastMoments; !ending && !k.ledger.Holds(l.Element) {
			out = append(out, l.Element)
		}
	}
	for _, u := range used {
		if k.fw.Reduced() == "" && !k.ledger.Knows(u.Element) {
			out = append(out, u.Element)
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
	return k.leaseAll(ctx)
}

// leaseAll gives the kernel every lease of the book.
func (k *keeper) leaseAll(ctx context.Context) error {
	k.leasing.RLock()
	defer k.leasing.RUnlock()
	return k.fw.Lease(ctx, k.ledger.Leases())
}
