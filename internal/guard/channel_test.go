package guard

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/wire"
)

// TestKeeperGoneBeforeTheAnswer: a keeper that ends while it has asked something is gone, which is nothing to report.
func TestKeeperGoneBeforeTheAnswer(t *testing.T) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.OpenPair(theirs)
	if err != nil {
		t.Fatal(err)
	}
	keeper := wire.Open(ours, wire.MaxText)
	if err := keeper.Send(wire.Message{Op: wire.OpProbing, ID: 1}, nil); err != nil {
		t.Fatal(err)
	}
	keeper.Close()
	g := &guard{channel: wire.Open(conn, wire.MaxText), log: slog.New(slog.DiscardHandler)}
	if err := g.serveChannel(t.Context()); !errors.Is(err, child.ErrKeeperGone) {
		t.Errorf("the guard ends by %v", err)
	}
}
