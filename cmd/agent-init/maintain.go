package main

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

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
	var leasing bursts
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			if leasing.over(k.ledger.sweep()) {
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
