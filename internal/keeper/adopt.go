package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// readPolicy loads the files of the configuration directory.
func (k *keeper) readPolicy() (*policy.Bundle, *policy.Policy, error) {
	const remedy = "see agent-init check, and correct the entries"
	k.watched.loaded = filesState(k.config.PolicyDir, container.HostsFile(k.state.Mode)) // before: a change meanwhile is noticed
	b, err := k.readFiles()
	if err != nil {
		return nil, nil, container.ReadFault(err)
	}
	p, err := policy.Parse(b, allowlist.Files)
	if err != nil {
		return nil, nil, fault.New(fault.Policy, remedy, "the policy has errors\n%w", err)
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
	taken, err := k.reloadNow(ctx)
	k.guard.awaitTaken(taken)
	return err
}

// reloadNow is reload that leaves waiting for the guard to its caller: a newer change
// must not wait for that.
func (k *keeper) reloadNow(ctx context.Context) (taken <-chan struct{}, err error) {
	k.reloading.Lock()
	defer k.reloading.Unlock()
	b, p, err := k.readPolicy()
	if err == nil {
		taken, err = k.adoptFiles(ctx, b, p)
		k.unadopted.Store(err != nil)
	}
	if err != nil {
		k.log.Error("the policy was not reloaded; the old one stays", "error", err)
		k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Fault, Reason: "reload failed, the old policy stays: " + text.InOneLine(err)})
		k.update(func(s *state.State) { s.Policy.Fault = err.Error(); s.Policy.Attempts++ })
	}
	k.publish()
	return taken, err
}

// adoptFiles is adopt of what was read from files, with the grants on top.
func (k *keeper) adoptFiles(ctx context.Context, files *policy.Bundle, p *policy.Policy) (<-chan struct{}, error) {
	k.mu.Lock()
	grants := k.grants.Clone()
	k.mu.Unlock()
	b := grants.Over(files)
	if len(b.Files) > len(files.Files) {
		var err error
		if p, err = policy.Parse(b, allowlist.Files); err != nil {
			return nil, fmt.Errorf("join grants and policy: %w", err)
		}
	}
	taken, err := k.adopt(ctx, b, p, grants)
	if err != nil {
		return nil, err
	}
	k.files = files
	for _, e := range k.cutsPaid() {
		k.record(e)
	}
	k.recordPolicy(p, "policy reloaded")
	k.publishPolicy(p)
	return taken, nil
}

// adopt brings a policy into force, of which grants are a part, and hands it to the guard. What is returned is
// closed when the guard has it, or is gone. An error leaves the old policy.
func (k *keeper) adopt(ctx context.Context, b *policy.Bundle, p *policy.Policy, grants grant.Book) (<-chan struct{}, error) {
	plan, err := k.plan(p, grants)
	if err != nil {
		return nil, err
	}
	if err := k.applyPlan(ctx, plan, p); err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.bundle, k.policy = b, p
	k.mu.Unlock()
	if k.ready() { // explain shows no lease that has just ended
		k.publishLeases(^uint64(0))
	}
	return k.guard.push(), nil
}

func (k *keeper) applyPlan(ctx context.Context, plan firewall.Plan, p *policy.Policy) error {
	k.leasing.Lock()
	defer k.leasing.Unlock()
	k.mu.Lock()
	old := k.policy
	k.mu.Unlock()
	closed := k.ledger.Adopt(p)
	// This ends flows as well: no packet passes for being part of one.
	if err := k.fw.Retain(ctx, closed, k.ledger.Knows); err != nil {
		// The kernel keeps its leases when it gets new rules. If some can't be
		// taken out, none may stay; those of the book are given again.
		if err := k.fw.RevokeAll(ctx); err != nil {
			k.ledger.Adopt(old)
			return fmt.Errorf("end the leases that the policy no longer allows: %w", err)
		}
	}
	if err := k.putRules(ctx, plan, k.ledger.Leases()); err != nil {
		k.ledger.Adopt(old)
		return fmt.Errorf("apply the rules: %w", err)
	}
	return nil
}

func (k *keeper) recordPolicy(p *policy.Policy, what string) {
	c := p.Counts()
	k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Info,
		Reason: fmt.Sprintf("%s: %s", what, state.SizeOf(c))})
	k.update(func(s *state.State) {
		s.Policy = state.Policy{Counts: c, Attempts: s.Policy.Attempts + 1, Loaded: time.Now()}
	})
}
