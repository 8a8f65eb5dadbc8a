package keeper

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/firewall"
)

const (
	idleFor    = 10 * time.Minute // a connection that is silent for longer goes on, and keeps no address open
	sweepEvery = time.Second
)

// maintain keeps leases that are in use, forgets the others, and holds the live
// rules against the plan, until ctx ends.
func (k *keeper) maintain(ctx context.Context) {
	changed, err := k.fw.Watch(ctx)
	if err != nil {
		k.log.Warn("rule changes are noticed by the clock only", "error", err)
	}
	renew, attest, sweep := time.NewTicker(lease.RenewEvery), time.NewTicker(state.AttestEvery), time.NewTicker(sweepEvery)
	defer renew.Stop()
	defer attest.Stop()
	defer sweep.Stop()
	var leasing bursts
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			if leasing.over(k.ledger.Sweep()) {
				go debug.FreeOSMemory()
			}
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

// manyChanges of the book leave megabytes behind, which the runtime would keep
// for minutes.
const manyChanges = 1000

// bursts notices the ends of those.
type bursts struct{ last, told uint64 }

// over takes the count of all changes, now and then, and says whether many have
// come and no more do.
func (b *bursts) over(changes uint64) bool {
	calm := changes == b.last
	b.last = changes
	if !calm || changes-b.told < manyChanges {
		return false
	}
	b.told = changes
	return true
}

// renew keeps open what answers. That is the kernel's own account, by element: the
// agent can't add to it, nor can connections to the gate, which lead nowhere else. On
// gated ports, it is the guard's onward connection that counts.
func (k *keeper) renew(ctx context.Context) {
	all, err := k.fw.InUse(ctx)
	if err != nil {
		k.log.Warn("looking for leases in use", "error", err)
		return
	}
	under, busy := make(map[firewall.Element]bool, len(all)), map[firewall.Element]bool{}
	for _, u := range all {
		under[u.Element] = true
		if u.Idle < idleFor {
			busy[u.Element] = true
		}
	}
	k.ledger.ForgetLapsed(under)
	k.leasing.RLock()
	defer k.leasing.RUnlock()
	if leases := k.ledger.Renew(busy, lease.RenewWindow, lease.RenewFor); len(leases) > 0 {
		if err := k.fw.Lease(ctx, leases); err != nil {
			k.log.Warn("renewing leases", "error", err)
		}
	}
}
