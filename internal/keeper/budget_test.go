package keeper

import (
	"fmt"
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestBudgetOutlivesGuards: what a guard has asked below a wildcard counts for the
// next one too, and who asks for leases without asking for the name gets as few.
func TestBudgetOutlivesGuards(t *testing.T) {
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte("*.wild.test\nok.test\n")}}}, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	const most = 120
	k := &leases{book: newBook(nil, p), names: budget.NewBudget()}
	asked := 0
	for i := range 5 * most {
		if m := k.mayAsk(wire.Message{Name: fmt.Sprintf("n%d.wild.test", i)}, wire.Message{Op: wire.OpName, ID: 7}); m.Op != wire.OpName || m.ID != 7 {
			t.Fatalf("answered by %+v", m)
		} else if !m.Err {
			asked++
		}
	}
	if asked < most || asked > most+most/10 { // some come back while this runs
		t.Errorf("%d new names were allowed, want %d", asked, most)
	}
	leased := 0
	for i := range 100 {
		if k.spent(fmt.Sprintf("l%d.wild.test", i), (*budget.Budget).Has) {
			leased++
		}
	}
	if leased > most/10 {
		t.Errorf("%d names that were not asked for could be leased", leased)
	}
	if !k.spent("n0.wild.test", (*budget.Budget).Has) {
		t.Error("a name that was asked for can't be leased")
	}
	if k.mayAsk(wire.Message{Name: "ok.test"}, wire.Message{}).Err {
		t.Error("an exact name has a budget")
	}
}
