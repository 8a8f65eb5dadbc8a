package keeper

import (
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/budget"
)

// What the agent may have the guard do is limited where no end of a guard can reset
// it, and where a guard that was taken over can't go around it: in the keeper. What
// is under way between the two at a time is one number for both, asksAtOnce.

// budgets are the keeper's, of all guards together.
type budgets struct {
	names    *budget.Budget // below wildcards
	requests budget.Pace
}

func newBudgets() *budgets {
	return &budgets{names: budget.NewBudget(), requests: budget.Pace{Burst: wire.RequestBurst, Every: wire.RequestEvery}}
}

// mayAsk serves the guard, which asks before each question below a wildcard.
func (k *keeper) mayAsk(m wire.Message) wire.Message {
	return wire.Message{Op: wire.OpName, ID: m.ID, Err: !k.spent(m.Name, (*budget.Budget).Take)}
}

// spent says whether the budget of the wildcard that name is below has it, by how.
func (k *keeper) spent(name string, how func(*budget.Budget, string, string, int, time.Time) bool) bool {
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	match := p.Lookup(name)
	if match.Wildcard == nil {
		return true // it has none: what else is to be said of it, others say
	}
	return how(k.budgets.names, match.Wildcard.Name, match.Name, p.Settings().Limits.NewNamesPerWildcardPerMinute, time.Now())
}
