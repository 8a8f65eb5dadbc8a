package guard

import (
	"fmt"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/budget"
)

// TestHoldsAreBounded: so many names wait, so many questions for each, each name once, and more only with time.
func TestHoldsAreBounded(t *testing.T) {
	now := time.Now()
	h := newHolds()
	for i := range heldAtOnce {
		if one, first := h.begin(fmt.Sprintf("%d.test", i), now); one == nil || !first {
			t.Fatalf("name %d does not wait", i)
		}
	}
	h.pace = budget.Pace{Burst: 1 << 20, Every: time.Hour}
	if one, _ := h.begin("more.test", now); one != nil {
		t.Error("one name more waits")
	}
	for i := 1; i < heldWaiters; i++ {
		if one, first := h.begin("0.test", now); one == nil || first {
			t.Fatalf("question %d does not wait", i)
		}
	}
	if one, _ := h.begin("0.test", now); one != nil {
		t.Error("one question more waits")
	}
	one := h.now["0.test"]
	h.end(func(name string) bool { return name == "0.test" })
	h.end(func(name string) bool { return name == "0.test" }) // once
	select {
	case <-one.over:
	default:
		t.Error("what is decided waits")
	}
	if again, _ := h.begin("0.test", now); again != nil {
		t.Error("a name waits twice")
	}
	if next, first := h.begin("more.test", now); next == nil || !first {
		t.Error("a place that is free is not given")
	}
	for i := range 2 * heldBefore {
		name := fmt.Sprintf("n%d.test", i)
		h.end(func(string) bool { return true })
		h.begin(name, now)
	}
	if len(h.before) > heldBefore || len(h.now) > heldAtOnce {
		t.Errorf("%d names are remembered, and %d wait", len(h.before), len(h.now))
	}

	h = newHolds()
	began := 0
	for i := range 1000 {
		if one, _ := h.begin(fmt.Sprintf("%d.test", i), now); one != nil {
			began++
		}
		h.end(func(string) bool { return true })
	}
	if began > heldAtOnce+1 {
		t.Errorf("%d names in no time", began)
	}
}
