package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
)

// TestAsksBounded: the guard has no more questions under way than the keeper serves,
// also those that nobody waits for any more, and a place is free with its answer.
func TestAsksBounded(t *testing.T) {
	a := newAsks()
	var ids []uint32
	for range wire.AsksAtOnce {
		id, _, err := a.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := a.begin(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("one more than that is asked: %v", err)
	}
	for range 3 { // what was not asked, or was answered, frees nothing
		a.end(wire.Message{ID: 1 << 31})
		a.end(wire.Message{ID: ids[0]})
	}
	if n := len(a.places); n != wire.AsksAtOnce-1 {
		t.Errorf("%d places are taken", n)
	}
	id, answer, err := a.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.end(wire.Message{ID: id, Err: true})
	if m := <-answer; !m.Err {
		t.Errorf("another answer: %+v", m)
	}
}

// TestBudgetOutlivesGuards: what a guard has asked below a wildcard counts for the
// next one too, and who asks for leases without asking for the name gets as few.
func TestBudgetOutlivesGuards(t *testing.T) {
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte("*.wild.test\nok.test\n")}}}, presets())
	if err != nil {
		t.Fatal(err)
	}
	const most = 120
	k := &keeper{policy: p, budgets: newBudgets()}
	asked := 0
	for i := range 5 * most {
		if m := k.mayAsk(wire.Message{ID: 7, Name: fmt.Sprintf("n%d.wild.test", i)}); m.Op != wire.OpName || m.ID != 7 {
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
		if k.spent(fmt.Sprintf("l%d.wild.test", i), (*resolver.Budget).Has) {
			leased++
		}
	}
	if leased > most/10 {
		t.Errorf("%d names that were not asked for could be leased", leased)
	}
	if !k.spent("n0.wild.test", (*resolver.Budget).Has) {
		t.Error("a name that was asked for can't be leased")
	}
	if k.mayAsk(wire.Message{Name: "ok.test"}).Err {
		t.Error("an exact name has a budget")
	}
}
