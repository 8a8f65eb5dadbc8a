package keeper

import (
	"log/slog"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
)

// TestShipped: what an exporter says counts up to what the log has, and takes nothing back. It is opened files of the log.
func TestShipped(t *testing.T) {
	mustrun.Root(t) // whose the log is
	log, err := audit.Open(audit.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for range 10 {
		log.Write(audit.Event{Kind: audit.Guard, Verdict: audit.Info})
	}
	k := &exporterKeeper{child: child{base: &base{publisher: &publisher{log: slog.New(slog.DiscardHandler), record: audit.Discard, audit: log}}}}
	k.opens.Burst = 100
	says := func(seq, sent, refused, lost uint64) {
		m := wire.Message{Op: wire.OpShipped, Arg: seq, Text: "a  b\x1b[2J"}
		m.Stats.Passed, m.Stats.Refused, m.Stats.Drops = sent, refused, lost
		k.shipped(m)
	}
	says(5, 3, 1, 1)
	says(2, 1, 0, 0)
	if want := (stage.Place{Seq: 5, Sent: 3, Refused: 1, Lost: 1}); k.placed.Place != want {
		t.Errorf("%+v, want %+v", k.placed.Place, want)
	}
	says(1<<60, 1<<60, 1<<60, 1<<60)
	if want := (stage.Place{Seq: 10, Sent: 10, Refused: 10, Lost: 10}); k.placed.Place != want {
		t.Errorf("%+v, want %+v", k.placed.Place, want)
	}
	if s := k.status().Telemetry; s.Seq != 10 || s.Why != "a b?[2J" || s.Behind(12) != 2 {
		t.Errorf("%+v", s)
	}
	for _, name := range []string{"", "..", "../audit.jsonl", "audit.jsonl.0", "audit.jsonl.01", "audit.jsonl.-1", "telemetry.json", "/etc/passwd"} {
		if f, err := k.opened(wire.Message{Name: name}); err == nil {
			f.Close()
			t.Errorf("%q is opened", name)
		}
	}
}
