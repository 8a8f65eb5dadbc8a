package keeper

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestJudgeServers: a server of the container's own is taken by a person's word
// alone, and only where rules know the agent.
func TestJudgeServers(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	own := ""
	for _, a := range addrs {
		if p := netip.MustParsePrefix(a.String()); !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			own = netip.AddrPortFrom(p.Addr(), 53).String()
		}
	}
	for _, tc := range []struct {
		mode, upstream string
		ok             bool
	}{
		{"run", "192.0.2.1", true},
		{"run", "127.0.0.1:5353 local", true},
		{"up", "tls://127.0.0.1#dns.example local", true},
		{"sidecar", "127.0.0.1:5353 local", false},
		{"sidecar", "192.0.2.1", true},
		{"sidecar", "127.0.0.11", false},
		{"run", "127.0.0.11", true},
		{"run", own, false},
		{"run", own + " local", true},
	} {
		if strings.HasPrefix(tc.upstream, " ") || tc.upstream == "" {
			continue // a machine without an address of its own
		}
		p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte("dns: {upstream: ['" + tc.upstream + "']}\n")}}}, allowlist.Files)
		if err != nil {
			t.Fatal(err)
		}
		s := &servers{base: &base{publisher: &publisher{log: slog.New(slog.DiscardHandler)}, mode: tc.mode}}
		if err := s.judge(p); (err == nil) != tc.ok {
			t.Errorf("%s: %s: %v", tc.mode, tc.upstream, err)
		}
	}
}
