package main

import (
	"context"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
)

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
	if !k.spent(m.name, (*resolver.Budget).Has) {
		return reply
	}
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
