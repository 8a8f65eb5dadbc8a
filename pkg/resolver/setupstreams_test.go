package resolver

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

func TestSetUpstreams(t *testing.T) {
	one := []policy.Upstream{{Addr: netip.MustParseAddrPort("192.0.2.1:53")}}
	other := []policy.Upstream{{Addr: netip.MustParseAddrPort("192.0.2.1:853"), TLSName: "dns.test"}}
	s, err := New(Config{
		Policy:    func() *policy.Policy { return nil },
		Admit:     func(context.Context, string, []netip.Addr, time.Duration) ([]netip.Addr, error) { return nil, nil },
		Upstreams: one, Ephemeral: [2]uint16{32768, 60999},
	})
	if err != nil {
		t.Fatal(err)
	}
	first := s.upstreams.Load()
	for _, bad := range [][]policy.Upstream{{{}}, {one[0], {Addr: netip.MustParseAddrPort("192.0.2.1:0")}}} {
		if s.SetUpstreams(bad) == nil || s.upstreams.Load() != first {
			t.Errorf("%v: taken", bad)
		}
	}
	if err := s.SetUpstreams(one); err != nil || s.upstreams.Load() != first {
		t.Errorf("the same servers: %v, or what was known of them is gone", err)
	}
	if err := s.SetUpstreams(other); err != nil {
		t.Fatal(err)
	}
	if u := s.upstreams.Load().servers; len(u) != 1 || u[0].Upstream != other[0] || u[0].tls == nil || u[0].ports.high != 60999 {
		t.Errorf("not taken as given: %+v", u[0].Upstream)
	}
}
