package keeper

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// TestPublishMetrics: the metrics are written with the state. Where one of the two can't be written, the other is.
func TestPublishMetrics(t *testing.T) {
	for _, blocked := range []string{"", state.MetricFile, state.StatusFile} {
		dir := t.TempDir()
		if blocked != "" { // nothing replaces a directory
			if err := os.MkdirAll(filepath.Join(dir, blocked, "x"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		k := &publisher{dir: state.Dir(dir), version: "1.2", log: slog.New(slog.DiscardHandler)}
		k.update(func(s *state.State) { s.Guard.Stats.Denied = 10 })
		k.publish()
		for name, want := range map[string]string{
			state.MetricFile: "agent_init_dns_queries_total{decision=\"deny\"} 10\n", state.StatusFile: `"denied": 10,`,
		} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if got := err == nil && strings.Contains(string(data), want); got != (name != blocked) {
				t.Errorf("without %q: %s: %v\n%s", blocked, name, err, data)
			}
		}
	}
}
