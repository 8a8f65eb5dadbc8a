package keeper

import "github.com/agent-init/agent-init/internal/state"

// publishLeases writes the leases if anything about them has changed since the
// count of changes before, and returns the present count.
func (k *keeper) publishLeases(before uint64) uint64 {
	k.publishing.Lock()
	defer k.publishing.Unlock()
	r, now := k.ledger.Report(before)
	if r == nil {
		return now
	}
	if err := k.dir.Write(state.LeasesFile, 0o644, r); err != nil {
		k.unpublished("the leases", err)
	}
	return now
}
