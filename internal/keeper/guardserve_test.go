package keeper

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
)

// idleGuard keeps a guard that was never started.
func idleGuard() *guardKeeper {
	b := &base{publisher: &publisher{log: slog.New(slog.DiscardHandler), record: audit.Discard}}
	k := newBook(b, nil)
	return &guardKeeper{child: child{base: b, who: "the guard"}, book: k, leases: &leases{base: b, book: k, requests: budget.Pace{Burst: 1, Every: time.Hour}}, has: new(policy.Policy)}
}

// TestGuardFlood: a guard that asks and asks, faster than it is answered, is ended
// before its questions fill the keeper's memory.
func TestGuardFlood(t *testing.T) {
	ours, theirs := channelPair(t)
	k := idleGuard()
	k.leases.requests.Burst = 1 << 20 // else they are turned down at once
	full := inForce{policy: k.book.policy()}
	for range grant.MaxRequests {
		full.grants.List = append(full.grants.List, grant.Grant{Kind: grant.Request})
	}
	k.book.present.Store(&full)
	k.book.changing.Lock() // a change of the policy that takes long
	defer k.book.changing.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- k.serve(t.Context(), ours) }()
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

// TestGuardLateReader: a guard that is kept from reading for longer than a message may
// take has each of its answers all the same, since it holds a place for each.
func TestGuardLateReader(t *testing.T) {
	t.Parallel()
	ours, theirs := channelPair(t)
	k := idleGuard()
	ended := make(chan error, 1)
	go func() { ended <- k.serve(t.Context(), ours) }()
	for id := range uint32(wire.AsksAtOnce) {
		if err := theirs.Send(wire.Message{Op: wire.OpOwner, ID: id}, nil); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Second) // a message may take two
	answered := make(chan uint32)
	go func() {
		for range wire.AsksAtOnce {
			m, _, err := theirs.Receive()
			if err != nil {
				return
			}
			answered <- m.ID
		}
	}()
	for n := range wire.AsksAtOnce {
		select {
		case <-answered:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d questions were answered", n, wire.AsksAtOnce)
		}
	}
	theirs.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the keeper does not notice that the guard has gone")
	}
}
