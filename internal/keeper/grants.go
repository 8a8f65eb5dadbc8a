package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// changeGrants brings a changed book into force: kernel, guard and live
// connections, as a reload does. If that fails, the book stays as it was, but for what
// only takes away, which is owed. change may not keep what it is given.
func (k *keeper) changeGrants(ctx context.Context, change func(*grant.Book) ([]audit.Event, error)) error {
	taken, err := k.changeGrantsNow(ctx, change)
	k.guard.awaitTaken(taken)
	return err
}

// changeGrantsNow is changeGrants that leaves waiting for the guard to its caller.
func (k *keeper) changeGrantsNow(ctx context.Context, change func(*grant.Book) ([]audit.Event, error)) (<-chan struct{}, error) {
	k.reloading.Lock()
	defer k.reloading.Unlock()
	k.mu.Lock()
	next := k.grants.Clone()
	k.mu.Unlock()
	events, err := change(&next)
	if err != nil {
		return nil, err
	}
	b := next.Over(k.files)
	p, err := policy.Parse(b, allowlist.Files)
	if err != nil {
		return nil, fmt.Errorf("join grants and policy: %w", err)
	}
	taken, err := k.adopt(ctx, b, p, next)
	if err != nil {
		err = k.oweCut(next, events, err)
	} else {
		events = append(k.cutsPaid(), events...)
		k.mu.Lock()
		k.grants = next
		k.state.Policy.Counts = p.Counts()
		k.mu.Unlock()
		for _, e := range events {
			k.record(e)
		}
		k.publishPolicy(p)
	}
	k.publishGrants()
	k.publish()
	return taken, err
}

// expireGrants ends what is over. What could not be ended is owed, see owedCuts.
func (k *keeper) expireGrants(ctx context.Context) {
	k.mu.Lock()
	look := k.grants.Clone()
	k.mu.Unlock()
	if len(look.Expire(time.Now())) == 0 {
		return
	}
	// Its error is in the log and the status.
	_ = k.changeGrants(ctx, func(b *grant.Book) (events []audit.Event, _ error) {
		for _, g := range b.Expire(time.Now()) {
			events = append(events, g.Event(audit.Info, "expired", nil))
		}
		return events, nil
	})
}

// endGrants is for a keeper that ends while the rules stay: nobody would end
// its grants.
func (k *keeper) endGrants(ctx context.Context) {
	err := k.changeGrants(ctx, func(b *grant.Book) (events []audit.Event, _ error) {
		for _, g := range b.Clone().List {
			if g.Kind == grant.Allow {
				if _, err := b.End(g.Number, grant.Decision{}); err != nil {
					return nil, err
				}
				events = append(events, g.Event(audit.Info, "ended with the keeper", nil))
			}
		}
		if len(events) == 0 {
			return nil, errNothingToEnd
		}
		return events, nil
	})
	if err != nil && !errors.Is(err, errNothingToEnd) {
		k.log.Error("ending grants", "error", err)
	}
}

var errNothingToEnd = errors.New("no grants")

// publishGrants writes the book for everyone to read.
func (k *keeper) publishGrants() {
	k.publishing.Lock()
	defer k.publishing.Unlock()
	k.mu.Lock()
	book := k.grants.Clone()
	list, decided := book.List, book.Decided
	s := state.Grants{Requests: grant.Count(list, true), Fault: k.state.Grants.Fault}
	for _, g := range list {
		switch g.Kind {
		case grant.Allow:
			s.Allowed++
		case grant.Deny:
			s.Denied++
		}
	}
	k.state.Grants = s
	k.mu.Unlock()
	list = append(append([]grant.Grant{}, list...), decided...)
	if err := k.dir.Write(state.GrantsFile, 0o644, grant.Report{Version: 1, Grants: list}); err != nil {
		k.unpublished("the grants", err)
	}
}
