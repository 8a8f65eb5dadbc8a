package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

func TestPassOver(t *testing.T) {
	own := map[netip.Addr]bool{netip.MustParseAddr("172.30.0.2"): true, netip.MustParseAddr("fe80::5"): true}
	for text, tc := range map[string]struct {
		engine string // why the engine's is not asked
		want   string
	}{
		"nameserver 127.0.0.53\nnameserver 192.0.2.1\n": {"", "[192.0.2.1:53] 1"},
		"nameserver ::1\n": {"", "[] 1"},
		"nameserver ::ffff:127.0.0.53\nnameserver 127.1.2.3\n":                      {"", "[] 2"},
		"nameserver 0.0.0.0\nnameserver ::\n":                                       {"", "[] 2"},
		"nameserver 172.30.0.2\nnameserver fe80::5%eth0\nnameserver fe80::6%eth0\n": {"", "[[fe80::6%eth0]:53] 2"},
		"nameserver 127.0.0.11\n":                                                   {"", "[127.0.0.11:53] 0"},
		"nameserver 127.0.0.11\nnameserver 192.0.2.2\n":                             {"nobody knows whose", "[192.0.2.2:53] 1"},
	} {
		c, err := parseResolvConf(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c.passOver(own, tc.engine)
		if got := fmt.Sprint(c.servers, len(c.passedOver)); got != tc.want {
			t.Errorf("%q: %s, want %s (%q)", text, got, tc.want, c.passedOver)
		}
	}
}

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
		p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte("dns: {upstream: ['" + tc.upstream + "']}\n")}}}, presets())
		if err != nil {
			t.Fatal(err)
		}
		k := &keeper{state: state.State{Mode: tc.mode}, log: slog.New(slog.DiscardHandler), fw: &firewall.Firewall{}}
		if err := k.judgeServers(p); (err == nil) != tc.ok {
			t.Errorf("%s: %s: %v", tc.mode, tc.upstream, err)
		}
	}
}

// TestBeliever: in a sidecar the engine's server is believed as long as its sockets
// are those of the start.
func TestBeliever(t *testing.T) {
	f, err := sockowner.Open()
	if err != nil {
		mustrun.Lacks(t, "the kernel does not tell of sockets: %v", err)
	}
	defer f.Close()
	find := sockowner.NewFinder(f)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bound, err := find.At(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	var mine []sockowner.Bound
	for _, b := range bound {
		if b.At.String() == l.Addr().String() {
			mine = append(mine, b)
		}
	}
	if len(mine) != 1 {
		t.Fatalf("of %v, %v are at %v", bound, mine, l.Addr())
	}
	engine := resolver.Upstream{Addr: netip.AddrPortFrom(policy.EngineDNS(), 53)}
	other := resolver.Upstream{Addr: netip.MustParseAddrPort("192.0.2.1:53")}
	if err := believer(find, mine)(engine); err != nil {
		t.Error(err)
	}
	if err := believer(find, nil)(engine); !errors.Is(err, errOtherEngine) {
		t.Errorf("without a socket: %v", err)
	}
	l.Close()
	if err := believer(find, mine)(engine); !errors.Is(err, errOtherEngine) {
		t.Errorf("after its end: %v", err)
	}
	if err := believer(find, mine)(other); err != nil {
		t.Errorf("a server elsewhere: %v", err)
	}
}
