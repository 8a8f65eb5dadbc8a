package peers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// TestAsksBounded: a child has no more questions under way than the keeper serves,
// also those that nobody waits for any more, and a place is free with its answer.
func TestAsksBounded(t *testing.T) {
	a := NewAsks(nil)
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
		a.End(wire.Message{ID: 1 << 31})
		a.End(wire.Message{ID: ids[0]})
	}
	if n := len(a.places); n != wire.AsksAtOnce-1 {
		t.Errorf("%d places are taken", n)
	}
	id, answer, err := a.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.End(wire.Message{ID: id, Err: true})
	if m := <-answer; !m.Err {
		t.Errorf("another answer: %+v", m)
	}
}
