package keeper

import (
	"context"
	"time"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// lease serves one request of the guard: the addresses are open in the kernel
// before the answer is sent.
func (k *keeper) lease(ctx context.Context, m wire.Message) wire.Message {
	reply := wire.Message{Op: wire.OpLease, ID: m.ID}
	// What was booked reaches the kernel, or is unbooked, also if the guard that
	// asked has ended meanwhile.
	whole := context.WithoutCancel(ctx)
	k.leasing.RLock()
	defer k.leasing.RUnlock()
	ctx, cancel := context.WithTimeout(whole, leaseTime)
	defer cancel()
	reply.Edition, reply.TTL = k.edition.Load(), lease.TTL(m.TTL)
	if !k.spent(m.Name, (*budget.Budget).Has) {
		return reply
	}
	open, admitted := k.ledger.Lease(m.Name, m.Addrs, m.TTL)
	if len(open) == 0 {
		return reply
	}
	if err := k.fw.Lease(ctx, open); err != nil {
		k.log.Error("leasing", "name", m.Name, "error", err)
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Name: m.Name, Reason: "the kernel refused the lease: " + err.Error()})
		ctx, cancel := context.WithTimeout(whole, leaseTime) // of the first there may be nothing left
		defer cancel()
		k.revoke(ctx, k.ledger.RevokeName(m.Name))
		reply.Err = true
		return reply
	}
	reply.Addrs = admitted
	return reply
}

// held answers the name gate: does the book have this address for this name?
func (k *keeper) held(m wire.Message) wire.Message {
	reply := wire.Message{Op: wire.OpHeld, ID: m.ID, Err: true}
	if len(m.Addrs) == 1 {
		var left time.Duration
		left, reply.Edition = k.ledger.LeasedTo(m.Name, firewall.Element{Addr: m.Addrs[0], Proto: uint8(policy.TCP), Port: m.Port})
		reply.Err, reply.TTL = left == 0, left
	}
	return reply
}

// direct answers it about what it can't look into: does the policy allow this
// address by itself, or does the book have it for any name?
func (k *keeper) direct(m wire.Message) wire.Message {
	reply := wire.Message{Op: wire.OpDirect, ID: m.ID, Err: true}
	if len(m.Addrs) != 1 {
		return reply
	}
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	if p.DecideAddr(m.Addrs[0], policy.Port{Proto: policy.TCP, Number: m.Port}).Allowed {
		reply.Err = false
		return reply
	}
	if name := k.ledger.Holder(firewall.Element{Addr: m.Addrs[0], Proto: uint8(policy.TCP), Port: m.Port}); name != "" {
		reply.Name, reply.Err = name, false
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
