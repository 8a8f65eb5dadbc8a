package lease

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
)

const routed = `
domains: [a.example.com:443]
broker:
  anthropic: {credential: "env:KEY"}
  local: {to: "https://models.corp.example/", private: true, credential: "env:LOCAL", inject: {header: Authorization, value: "Bearer {}"}, allow: ["GET /**"]}
`

// TestBooks: each holder has what its own policy admits, be it the same address, and loses that alone.
func TestBooks(t *testing.T) {
	b := NewBooks(parsePolicy(t, routed), &wire.Edition{Uint64: new(atomic.Uint64)})
	agents, brokers := b.Of(firewall.Agent), b.Of(firewall.Broker)
	for _, tt := range []struct {
		ledger     *Ledger
		name, addr string
		want       int
	}{
		{agents, "a.example.com", "45.30.0.1", 1},
		{agents, "api.anthropic.com", "45.30.0.1", 0},
		{brokers, "api.anthropic.com", "45.30.0.1", 1},
		{brokers, "a.example.com", "45.30.0.2", 0},
		{brokers, "evil.example", "45.30.0.2", 0},
		{brokers, "api.anthropic.com", "10.0.0.1", 0},
		{brokers, "api.anthropic.com", "169.254.169.254", 0},
		{brokers, "models.corp.example", "10.0.0.1", 1},
	} {
		if _, got := tt.ledger.Lease(tt.name, addrs(tt.addr), time.Minute); len(got) != tt.want {
			t.Errorf("%s at %s: admitted %v, want %d", tt.name, tt.addr, got, tt.want)
		}
	}
	mine, its := tcp("45.30.0.1", 443), tcp("45.30.0.1", 443)
	its.For = firewall.Broker
	local := tcp("10.0.0.1", 443)
	local.For = firewall.Broker
	for _, e := range []firewall.Element{mine, its, local} {
		if !b.Holds(e) || !b.Knows(e) {
			t.Errorf("no book has %v", e)
		}
	}
	if other := tcp("10.0.0.1", 443); b.Holds(other) {
		t.Error("the agent has what the broker has")
	}
	if n := len(b.Leases()); n != 3 {
		t.Errorf("%d leases: %v", n, b.Leases())
	}
	if leases := b.Renew(used(its), time.Hour, 2*time.Hour); len(leases) != 1 || leases[0].Element != its {
		t.Errorf("renewed %v", leases)
	}
	r, seen := b.Report(0)
	if r == nil || len(r.Names) != 1 || len(r.Broker) != 2 || r.Broker[0].Name != "api.anthropic.com" {
		t.Errorf("report: %+v", r)
	}
	if again, _ := b.Report(seen); again != nil {
		t.Errorf("reported with nothing new: %+v", again)
	}
	if open, left := brokers.Open("API.anthropic.com"); !slices.Equal(open, addrs("45.30.0.1")) || left <= 0 {
		t.Errorf("open: %v for %v", open, left)
	}
	// Without routes, all of the broker's is to be taken out at once, and nothing of the agent's.
	closed := b.Adopt(parsePolicy(t, "domains: [a.example.com:443]"))
	if slices.SortFunc(closed, func(a, b firewall.Element) int { return a.Addr.Compare(b.Addr) }); !slices.Equal(closed, []firewall.Element{local, its}) {
		t.Errorf("closed %v", closed)
	}
	if b.Knows(its) || !b.Holds(mine) {
		t.Error("the broker keeps its lease, or the agent does not")
	}
	if _, got := brokers.Lease("api.anthropic.com", addrs("45.30.0.1"), time.Minute); len(got) > 0 {
		t.Error("leased to a broker without routes")
	}
	if names, elements := b.Counts(); names != 1 || elements != 1 {
		t.Errorf("%d names, %d elements", names, elements)
	}
	if r, _ := b.Report(seen); r == nil || r.Broker != nil {
		t.Errorf("report: %+v", r)
	}
}
