package lease

import (
	"net/netip"
	"testing"

	"github.com/agent-init/agent-init/pkg/firewall"
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

// Adopt is Begin and Sift of all.
func (l *Ledger) Adopt(p *policy.Policy) (closed []firewall.Element) {
	closed = l.Begin(p, policy.Change{})
	return append(closed, siftAll(l.Sift)...)
}

// Adopt is that of all.
func (b Books) Adopt(p *policy.Policy) (closed []firewall.Element) {
	closed = b.Begin(p)
	return append(closed, siftAll(b.Sift)...)
}

func siftAll(sift func() ([]firewall.Element, []firewall.Lease, bool)) (closed []firewall.Element) {
	for more := true; more; {
		var some []firewall.Element
		some, _, more = sift()
		closed = append(closed, some...)
	}
	return closed
}
