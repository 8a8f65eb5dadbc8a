package keeper

import (
	"context"
	"fmt"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
)

// owedCuts are changes of the grants that take something away, and that could not be
// brought into force. The book has them already: whatever changes the policy next brings
// them along, and the keeper tries them again. They are reloading's own.
type owedCuts struct {
	events []audit.Event // what is to be said when they are in force
}

// oweCut keeps the book of a change that failed, if that took something away and opened
// nothing. The error says so then.
func (k *keeper) oweCut(next grant.Book, events []audit.Event, failed error) error {
	k.mu.Lock()
	owe := next.OnlyCuts(k.grants)
	if owe {
		k.grants = next
	}
	owed := owe || k.owedCuts != nil
	news := owed && k.state.Grants.Fault != failed.Error()
	if owed {
		k.state.Grants.Fault = failed.Error()
	}
	k.mu.Unlock()
	if owe && k.owedCuts == nil {
		k.owedCuts = &owedCuts{}
	}
	if owe {
		k.owedCuts.events = append(k.owedCuts.events, events...)
		failed = fmt.Errorf("not in force yet, and tried again until it is: %w", failed)
	}
	if news { // and not each time that it is tried
		k.log.Error("taking away what was granted", "error", failed)
		k.record(audit.Event{Kind: audit.Grant, Verdict: audit.Fault, Reason: "a denial, or the end of a grant, is owed: " + failed.Error()})
	}
	return failed
}

// cutsPaid is called when a policy is in force that has the book in it. It returns what
// is to be said of those that were owed.
func (k *keeper) cutsPaid() []audit.Event {
	if k.owedCuts == nil {
		return nil
	}
	said := k.owedCuts.events
	k.owedCuts = nil
	k.update(func(s *state.State) { s.Grants.Fault = "" })
	return said
}

// payCuts tries what is owed again.
func (k *keeper) payCuts(ctx context.Context) {
	k.mu.Lock()
	owed := k.state.Grants.Fault != ""
	k.mu.Unlock()
	if owed { // its error is in the log and the status
		_ = k.changeGrants(ctx, func(*grant.Book) ([]audit.Event, error) { return nil, nil })
	}
}
