package lease

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
)

func newTestEdition() *wire.Edition { return &wire.Edition{Uint64: new(atomic.Uint64)} }

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
