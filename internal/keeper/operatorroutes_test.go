package keeper

import (
	"log/slog"
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestGrantsBesideARoute: what the broker reaches is neither granted to the agent nor proposed by it.
func TestGrantsBesideARoute(t *testing.T) {
	files := &policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte("broker:\n  anthropic: {}\n")}}}
	parsed, err := policy.Parse(files, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{dir: state.Dir(t.TempDir()), log: slog.New(slog.DiscardHandler), record: audit.Discard, state: state.State{Phase: state.PhaseReady}}
	b := &base{publisher: p}
	k := &keeper{base: b, book: newBook(b, parsed), guard: &guardKeeper{}, leases: new(leases)}
	k.book.files = files
	const want = "https://api.anthropic.com/ is reached through the broker alone, by the route anthropic (policy.yaml:2)"
	for _, target := range []string{"api.anthropic.com", "API.anthropic.com:22", "*.anthropic.com"} {
		r := k.serveControl(t.Context(), control.Peer{}, control.Request{Verb: ask.Allow, Target: target})
		if r.OK || r.Code != fault.Usage || r.Error != want || r.Remedy != "ask the broker: agent-init explain anthropic" {
			t.Errorf("allow %s: %+v", target, r)
		}
		if _, err := k.book.request(wire.Message{Name: target}); err == nil || err.Error() != want {
			t.Errorf("request %s: %v", target, err)
		}
	}
	if len(k.book.now().grants.List) != 0 {
		t.Errorf("booked: %+v", k.book.now().grants.List)
	}
	for _, target := range []string{"other.example", "@claude", "api.anthropic.com unbrokered", "192.0.2.1"} {
		if err := k.book.beside(target); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}
