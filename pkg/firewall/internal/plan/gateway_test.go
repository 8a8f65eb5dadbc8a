package plan

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab/golden"
)

func aGateway() Config {
	at := netip.MustParseAddrPort
	return Config{
		GuardUID: 990, GuardGID: 48211, DNSPort4: 41053, DNSPort6: 41054, GatePort4: 41080, GatePort6: 41081, GuardZone: true, AnyAgent: true, DropGroup: 7,
		Upstreams: []netip.AddrPort{at("10.0.0.53:53"), at("[2001:db8::53]:53")},
		Allow:     []Entry{{netip.MustParsePrefix("192.0.2.7/32"), unix.IPPROTO_TCP, 22}},
		BrokerUID: 991, BrokerGID: 51007,
		Inside: Inside{
			Link: 3, Networks: []netip.Prefix{netip.MustParsePrefix("172.30.5.0/24"), netip.MustParsePrefix("fd00:5::/64")},
			DNS:    []netip.AddrPort{at("172.30.5.2:42053"), at("[fd00:5::2]:42054")},
			Gate:   []netip.AddrPort{at("172.30.5.2:42080"), at("[fd00:5::2]:42081")},
			Broker: []netip.AddrPort{at("172.30.5.2:42099"), at("[fd00:5::2]:42099")},
			Onward: true,
		},
	}
}

// TestGatewayPlan: the rules of a gateway, as they are known.
func TestGatewayPlan(t *testing.T) {
	p, err := New(aGateway())
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "gateway.golden", []byte(p.String()))
	if strings.Contains(p.String(), "flow add") {
		t.Error("a flow table would pass on what is no longer allowed")
	}
}

// TestGatewayErrors: what a gateway can't be is refused.
func TestGatewayErrors(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no interface":        func(c *Config) { c.Inside.Link = 0 },
		"no network":          func(c *Config) { c.Inside.Networks = nil },
		"an answer elsewhere": func(c *Config) { c.Inside.Gate = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:42080")} },
		"no port":             func(c *Config) { c.Inside.DNS = []netip.AddrPort{netip.MustParseAddrPort("172.30.5.2:0")} },
		"inbound":             func(c *Config) { c.Inbound = []Entry{{Proto: unix.IPPROTO_TCP, Port: 3000}} },
		"reduced":             func(c *Config) { c.Reduced, c.BrokerUID, c.BrokerGID = true, 0, 0 },
		"one interface":       func(c *Config) { c.Inside.Shared = true },
	} {
		c := aGateway()
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestGatewayForwards: only a gateway's plan passes anything on, and none that is sealed.
func TestGatewayForwards(t *testing.T) {
	sealed, off := aGateway(), aGateway()
	sealed.Sealed = true
	off.Inside = Inside{}
	for name, c := range map[string]Config{"sealed": sealed, "no gateway": off} {
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range p.Chains {
			if ch.Hook == "forward" && (!ch.Closed || len(ch.Rules) > 0) || ch.Hook == "prerouting" {
				t.Errorf("%s: %v", name, ch)
			}
		}
	}
}
