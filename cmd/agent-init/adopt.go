package main

import (
	"context"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// readPolicy loads the files of the configuration directory.
func (k *keeper) readPolicy() (*policy.Bundle, *policy.Policy, error) {
	const remedy = "see agent-init check, and correct the entries"
	k.watched.loaded = filesState(k.config.dir) // before: a change meanwhile is noticed
	b, err := k.readFiles()
	if err != nil {
		return nil, nil, readFault(err)
	}
	p, err := policy.Parse(b, presets())
	if err != nil {
		return nil, nil, faultf(exitPolicy, remedy, "the policy has errors\n%w", err)
	}
	if err := k.judgeServers(p); err != nil {
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
		Reason: fmt.Sprintf("%s: %s", what, sizeOf(c))})
	k.update(func(s *state) { s.Policy = policyState{Counts: c, Attempts: s.Policy.Attempts + 1, Loaded: time.Now()} })
}
