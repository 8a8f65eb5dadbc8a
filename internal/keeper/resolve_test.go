package keeper

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

const routed = `
domains: [a.example.com:443]
broker:
  anthropic: {credential: "env:KEY"}
  byaddr: {to: "http://10.0.0.7:8000/", private: true, credential: none, allow: ["GET /**"]}
  byhosts: {to: "http://host.docker.internal:11434/", private: true, credential: none, allow: ["GET /**"]}
`

// resolving is a keeper with routes, and the channel of its guard.
func resolving(t *testing.T) (*guardKeeper, *wire.Channel) {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{
		Files: []policy.File{{Name: "policy.yaml", Data: []byte(routed)}},
		Hosts: []byte("172.17.0.1 host.docker.internal\n127.0.0.1 localhost\n"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := channelPair(t)
	g := idleGuard()
	g.book.present.Store(&inForce{policy: p})
	g.leases.books = lease.NewBooks(p, &wire.Edition{Uint64: new(atomic.Uint64)})
	g.resolving, g.asked = make(chan struct{}, resolvedAtOnce), map[uint32]chan wire.Message{}
	g.begun(ours)
	go func() { _ = g.serve(t.Context(), ours) }()
	return g, theirs
}

// answerWith has the guard answer each question in this way, and returns how often it was asked.
func answerWith(ch *wire.Channel, reply func(wire.Message) wire.Message) *atomic.Int32 {
	asked := new(atomic.Int32)
	go func() {
		for {
			m, _, err := ch.Receive()
			if err != nil {
				return
			}
			asked.Add(1)
			r := reply(m)
			r.Op, r.ID = wire.OpResolve, m.ID
			if ch.Send(r, nil) != nil {
				return
			}
		}
	}()
	return asked
}

// TestResolve: the broker is told of what is leased to it, whatever the guard says, and of hosts of its routes alone.
func TestResolve(t *testing.T) {
	g, guard := resolving(t)
	var said atomic.Pointer[wire.Message]
	said.Store(&wire.Message{TTL: time.Minute, Addrs: addrs("45.30.0.1", "45.30.0.9")})
	asked := answerWith(guard, func(wire.Message) wire.Message { return *said.Load() })
	for host, want := range map[string]string{
		"10.0.0.7": "10.0.0.7", "host.docker.internal": "172.17.0.1", // without the guard
		"a.example.com": "", "evil.example": "", "10.0.0.8": "", "169.254.169.254": "", "localhost": "", "127.0.0.1": "", "": "", "anthropic.com": "",
		"x.api.anthropic.com": "", "*.anthropic.com": "",
	} {
		got, _, err := g.resolve(t.Context(), host)
		if (err == nil) != (want != "") || want != "" && !slices.Equal(got, addrs(want)) {
			t.Errorf("%s: %v, %v", host, got, err)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the guard was asked %d times for what is no route's", n)
	}
	if got, _, err := g.resolve(t.Context(), "api.anthropic.com"); err == nil {
		t.Errorf("the guard's word alone is taken: %v", got)
	}
	lease := func(h firewall.Holder, addr string) {
		name := map[firewall.Holder]string{firewall.Agent: "a.example.com", firewall.Broker: "api.anthropic.com"}[h]
		if _, admitted := g.leases.books.Of(h).Lease(name, addrs(addr), 10*time.Minute); len(admitted) != 1 {
			t.Fatalf("%s is not leased", addr)
		}
	}
	lease(firewall.Agent, "45.30.0.9")
	lease(firewall.Broker, "45.30.0.1")
	lease(firewall.Broker, "45.30.0.2")
	got, left, err := g.resolve(t.Context(), "API.anthropic.com.")
	if err != nil || !slices.Equal(got, addrs("45.30.0.1")) || left > time.Minute || left < 50*time.Second {
		t.Errorf("leased: %v for %v, %v", got, left, err)
	}
	// A guard that can't tell ends nothing that is leased.
	said.Store(&wire.Message{Err: true, Text: "no upstream answered\x1b[2J"})
	if got, left, err := g.resolve(t.Context(), "api.anthropic.com"); err != nil || len(got) != 2 || left > time.Second {
		t.Errorf("leased still: %v for %v, %v", got, left, err)
	}
	g.leases.books.Of(firewall.Broker).RevokeName("api.anthropic.com")
	if got, _, err := g.resolve(t.Context(), "api.anthropic.com"); err == nil || !strings.Contains(err.Error(), "no upstream answered?") {
		t.Errorf("revoked: %v, %v", got, err)
	}
	g.book.present.Store(&inForce{policy: parsePolicy(t, "")})
	if got, _, err := g.resolve(t.Context(), "10.0.0.7"); err == nil {
		t.Errorf("without a route: %v", got)
	}
}

// TestResolveUnanswered: a guard that never answers is asked so many times at once and no more, and its end is the answer.
func TestResolveUnanswered(t *testing.T) {
	g, guard := resolving(t)
	asked := new(atomic.Int32)
	go func() {
		for {
			if _, _, err := guard.Receive(); err != nil {
				return
			}
			asked.Add(1)
		}
	}()
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	failed := make(chan error, 2*resolvedAtOnce)
	for range 2 * resolvedAtOnce {
		go func() {
			_, _, err := g.resolve(brief, "api.anthropic.com")
			failed <- err
		}()
	}
	for range 2 * resolvedAtOnce {
		if err := <-failed; err == nil {
			t.Error("resolved by nobody")
		}
	}
	if n := asked.Load(); n > resolvedAtOnce {
		t.Errorf("asked %d times at once", n)
	}
	g.lost()
	waiting := make(chan error, 1)
	ours, theirs := channelPair(t)
	g.begun(ours)
	go func() {
		_, _, err := g.resolve(t.Context(), "api.anthropic.com")
		waiting <- err
	}()
	if _, _, err := theirs.Receive(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	g.lost()
	if err := <-waiting; err == nil || time.Since(begun) > resolveTime/2 {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	if got, _, err := g.resolve(t.Context(), "api.anthropic.com"); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("without a guard: %v, %v", got, err)
	}
	for i := range resolvedAtOnce { // each is given back, if not at this very moment
		select {
		case g.resolving <- struct{}{}:
		case <-time.After(time.Minute):
			t.Fatalf("%d places stay taken", resolvedAtOnce-i)
		}
	}
}
