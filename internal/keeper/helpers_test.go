package keeper

import (
	"net/netip"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
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

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func parsePolicy(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte(text)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func newBook(b *base, p *policy.Policy) *book {
	if p == nil {
		p = &policy.Policy{}
	}
	k := &book{base: b, servers: &servers{base: b, file: "/nonexistent/resolv.conf"}}
	k.present.Store(&inForce{policy: p})
	return k
}
