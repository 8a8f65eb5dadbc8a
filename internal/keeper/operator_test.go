package keeper

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
)

// TestKernelReloadRefused: who has a policy reloaded that can't be, is told what is
// wrong with it and what mends that.
func TestKernelReloadRefused(t *testing.T) {
	mustrun.Root(t) // files of other owners are refused
	for name, c := range map[string]struct {
		text          string
		mode          os.FileMode
		cause, remedy string
	}{
		"a bad entry":        {"*.com\n", 0o644, "allowlist.txt:1", "agent-init check"},
		"anybody's to write": {"ok.example\n", 0o666, "allowlist.txt", "chmod"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &publisher{dir: state.Dir(t.TempDir()), log: slog.New(slog.DiscardHandler), record: audit.Discard, state: state.State{Phase: state.PhaseReady}}
			b := &base{publisher: p, config: Config{PolicyDir: t.TempDir()}}
			k := &keeper{base: b, book: newBook(b, nil), guard: &guardKeeper{}, leases: new(leases)}
			file := filepath.Join(k.config.PolicyDir, "allowlist.txt")
			if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, c.mode); err != nil {
				t.Fatal(err)
			}
			r := k.serveControl(t.Context(), control.Peer{}, control.Request{Verb: ask.Reload})
			if r.OK || r.Code != fault.Policy || !strings.Contains(r.Error, "the old one stays in force") || !strings.Contains(r.Error, c.cause) || !strings.Contains(r.Remedy, c.remedy) {
				t.Errorf("%+v", r)
			}
		})
	}
}
