package lease

import (
	"net/netip"
	"testing"

	"github.com/agent-init/agent-init/pkg/policy"
)

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
