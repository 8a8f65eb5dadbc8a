package peers

import (
	"os"
	"testing"

	"github.com/agent-init/agent-init/internal/wire"
)

func channelPair(t *testing.T) (a, b *wire.Channel) {
	t.Helper()
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.OpenPair(theirs)
	if err != nil {
		t.Fatal(err)
	}
	a, b = wire.Open(ours, wire.MaxText), wire.Open(conn, wire.MaxText)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func openFiles(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}
