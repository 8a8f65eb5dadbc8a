package keeper

import (
	"log/slog"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/state"
)

// TestPublishLast: what is written is the state at the time of writing, not of
// when a publisher began to wait for its turn. Else an earlier state could stay in
// the file for as long as nothing else happens, and agent-init wait would wait for
// what has come already.
func TestPublishLast(t *testing.T) {
	k := &publisher{dir: state.Dir(t.TempDir()), log: slog.New(slog.DiscardHandler)}
	k.writing.Lock() // somebody writes
	done := make(chan struct{})
	go func() { k.publish(); close(done) }()
	for range 1000 { // until it has taken its copy, as it must not
		copied := false
		k.update(func(s *state.State) { copied = !s.Published.IsZero() })
		if copied {
			break
		}
		time.Sleep(50 * time.Microsecond)
	}
	k.update(func(s *state.State) { s.Phase = state.PhaseReady })
	k.writing.Unlock()
	<-done
	var s state.State
	if err := k.dir.Read(state.StatusFile, &s); err != nil || s.Phase != state.PhaseReady {
		t.Errorf("the file says %q (%v)", s.Phase, err)
	}
}
