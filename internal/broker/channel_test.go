package broker

import (
	"errors"
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
	if err := keeper.Send(wire.Message{Op: wire.OpPing, ID: 1}, nil); err != nil {
		t.Fatal(err)
	}
	keeper.Close()
	p := &process{channel: wire.Open(conn, wire.MaxText)}
	if err := p.serveChannel(t.Context()); !errors.Is(err, child.ErrKeeperGone) {
		t.Errorf("the broker ends by %v", err)
	}
}
