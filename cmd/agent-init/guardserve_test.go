package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// TestGuardFlood: a guard that asks and asks, faster than it is answered, is ended
// before its questions fill the keeper's memory.
func TestGuardFlood(t *testing.T) {
	ours, theirs := ChannelPair(t)
	k := &keeper{log: slog.New(slog.DiscardHandler), budgets: newBudgets()}
	k.budgets.requests.Burst = 1 << 20 // else they are turned down at once
	for range maxRequests {
		k.grants.list = append(k.grants.list, grant{Kind: grantRequest})
	}
	k.reloading.Lock() // a change of the policy that takes long
	defer k.reloading.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- newGuardKeeper(k).readRequests(t.Context(), ours) }()
	for range 3 * wire.AsksAtOnce {
		if theirs.Send(wire.Message{Op: wire.OpRequest, Name: "a.test"}, nil) != nil {
			break // nobody reads it any more
		}
	}
	select {
	case err := <-ended:
		if !strings.Contains(err.Error(), "without reading") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("each of them waits in the keeper")
	}
}
