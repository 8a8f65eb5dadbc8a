package xtables

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

var update = flag.Bool("update", false, "write the golden files")

func TestPlanGolden(t *testing.T) {
	entry := func(prefix string, proto uint8, port uint16) plan.Entry {
		return plan.Entry{Prefix: netip.MustParsePrefix(prefix), Proto: proto, Port: port}
	}
	typical := plan.Config{
		GuardUID: 990, GuardGID: 48211, DNSPort4: 41053, DNSPort6: 41054, DropGroup: 7,
		Upstreams: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:53"), netip.MustParseAddrPort("[2001:db8::53]:53")},
		Allow:     []plan.Entry{entry("10.200.200.1/32", 6, 11434), entry("10.1.0.0/16", 6, 443), entry("2001:db8:1::/48", 6, 443), entry("10.9.9.9/32", 17, 123)},
	}
	for name, change := range map[string]func(*plan.Config){
		"sealed":    func(c *plan.Config) { *c = plan.Config{Sealed: true, DropGroup: 7, Allow: c.Allow} },
		"typical":   func(*plan.Config) {},
		"noipv6dns": func(c *plan.Config) { c.DNSPort6 = 0 },
		"inbound": func(c *plan.Config) {
			c.Inbound = []plan.Entry{{Proto: 6, Port: 8080}, {Proto: 17, Port: 3000}, {Proto: 6, Port: 3000}, {Proto: 6, Port: 3000}}
		},
		"denied": func(c *plan.Config) {
			c.Deny = []plan.Entry{entry("10.1.2.0/24", 0, 0), entry("10.1.0.0/16", 6, 25), entry("192.168.0.0/16", 0, 53), entry("fc00::/7", 0, 0), entry("169.254.9.9/32", 0, 0)}
		},
		"engine": func(c *plan.Config) {
			c.Upstreams = append(c.Upstreams, netip.MustParseAddrPort("127.0.0.11:53"), netip.MustParseAddrPort("127.0.0.11:53"))
		},
		"otherport": func(c *plan.Config) { // none but the guard's packets may be part of the guard's flows
			c.Upstreams = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:853"), netip.MustParseAddrPort("[2001:db8::53]:5353")}
		},
		"gated":  func(c *plan.Config) { c.GatePort4, c.GatePort6 = 41080, 41081 },
		"nogate": func(c *plan.Config) { c.GatePort4 = 41080 }, // no IPv6 listener
		"nolog":  func(c *plan.Config) { c.DropGroup = 0 },
		"zoned":  func(c *plan.Config) { c.GuardZone = true },
		"brokered": func(c *plan.Config) {
			c.GuardZone, c.GatePort4, c.GatePort6 = true, 41080, 41081
			c.BrokerUID, c.BrokerGID, c.BrokerPort4, c.BrokerPort6 = 991, 51007, 41099, 41100
			c.BrokerAllow = []plan.Entry{entry("10.3.0.7/32", 6, 8000), entry("2001:db8:3::7/128", 6, 8000)}
			c.BrokerDeny = []plan.Entry{entry("169.254.9.9/32", 0, 0), entry("100.100.100.200/32", 0, 0)}
		},
		"brokered-observed": func(c *plan.Config) { c.Observe, c.BrokerUID, c.BrokerGID, c.BrokerPort4 = true, 991, 51007, 41099 },
	} {
		t.Run(name, func(t *testing.T) {
			c := typical
			change(&c)
			p, err := plan.New(c)
			must(t, err)
			golden(t, name, p.String())
			golden(t, "xt/"+name, xtText(t, p))
			// The order of a policy's lines is no part of the plan.
			slices.Reverse(c.Allow)
			slices.Reverse(c.Deny)
			slices.Reverse(c.Inbound)
			slices.Reverse(c.Upstreams)
			slices.Reverse(c.Relayed)
			slices.Reverse(c.BrokerAllow)
			slices.Reverse(c.BrokerDeny)
			if q, err := plan.New(c); err != nil || q.String() != p.String() {
				t.Errorf("another order of entries gives another plan (%v)", err)
			}
		})
	}
}

// golden compares got with what the file of that name holds.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("this is not what %s holds (go test -update writes it anew):\n%s", file, got)
	}
}

func TestReducedPlanGolden(t *testing.T) {
	for name, change := range map[string]func(*plan.Config){
		"reduced":        func(*plan.Config) {},
		"reduced-sealed": func(c *plan.Config) { c.Sealed = true },
		"reduced-inbound": func(c *plan.Config) {
			c.Inbound = []plan.Entry{{Proto: 6, Port: 8080}, {Proto: 6, Port: 3000}, {Proto: 6, Port: 3000}}
		},
		"reduced-noipv6": func(c *plan.Config) { c.DNSPort6, c.GatePort6 = 0, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			c := fullReduced()
			change(&c)
			p, err := plan.New(c)
			must(t, err)
			golden(t, name, p.String())
			for _, s := range [][]plan.Entry{c.Allow, c.Deny, c.Inbound} {
				slices.Reverse(s)
			}
			slices.Reverse(c.Upstreams)
			slices.Reverse(c.Relayed)
			slices.Reverse(c.Local)
			if q, err := plan.New(c); err != nil || q.String() != p.String() {
				t.Errorf("another order of entries gives another plan (%v)", err)
			}
		})
	}
}

// fullReduced uses every field that counts in a reduced plan.
func fullReduced() plan.Config {
	entry := func(prefix string, proto uint8, port uint16) plan.Entry {
		return plan.Entry{Prefix: netip.MustParsePrefix(prefix), Proto: proto, Port: port}
	}
	return plan.Config{
		Reduced: true, GuardUID: 990, GuardGID: 48211, AgentUID: 1000, DNSPort4: 41053, DNSPort6: 41054, GatePort4: 41080, GatePort6: 41081,
		Relayed:   []uint16{443, 80, 22, 443},
		Upstreams: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:53"), netip.MustParseAddrPort("[2001:db8::53]:853")},
		Allow:     []plan.Entry{entry("10.1.0.0/16", 6, 443), entry("10.2.0.0/16", 6, 5432), entry("2001:db8:1::/48", 6, 5432)},
		Deny:      []plan.Entry{entry("10.1.2.0/24", 0, 0), entry("192.168.0.0/16", 0, 25)},
		Local: []netip.Prefix{
			netip.MustParsePrefix("172.17.0.2/16"), netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128"),
			netip.MustParsePrefix("fe80::2/64"), netip.MustParsePrefix("2001:db8:2::2/64"),
		},
	}
}

// TestGuardByBoth: no rule lets a uid pass for the guard without its group, and none
// asks for a group that is not to count.
func TestGuardByBoth(t *testing.T) {
	up := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.11:53"), netip.MustParseAddrPort("192.0.2.53:853")}
	for name, c := range map[string]plan.Config{
		"full":    {DNSPort4: 1, DNSPort6: 1, GatePort4: 2, GatePort6: 2, Upstreams: up, DropGroup: 7},
		"monitor": {DNSPort4: 1, DNSPort6: 1, GatePort4: 2, GatePort6: 2, Upstreams: up, DropGroup: 7, Observe: true},
		"reduced": {Reduced: true, AgentUID: 1000, DNSPort4: 1, GatePort4: 2, Relayed: []uint16{443}, Upstreams: up[1:]},
	} {
		c.GuardUID, c.GuardGID = 990, 48211
		both, err := plan.New(c)
		must(t, err)
		c.GuardGID, c.AnyGroup = 0, true
		alone, err := plan.New(c)
		must(t, err)
		for text, want := range map[string]bool{both.String(): true, alone.String(): false, xtText(t, both): true, xtText(t, alone): false} {
			uids, rest := 0, ""
			for line := range strings.Lines(text) {
				uid := strings.Contains(line, "skuid 990") || strings.Contains(line, "--uid-owner 990")
				gid := strings.Contains(line, "skgid 48211") || strings.Contains(line, "--gid-owner 48211")
				not := strings.Contains(line, "!= 990") || strings.Contains(line, "! --uid-owner 990") || strings.Contains(line, "! --gid-owner 48211") || strings.Contains(line, "!= 48211")
				refuses := strings.Contains(line, "refuse")
				if uid && !not && !refuses {
					uids++
					if gid != want {
						t.Errorf("%s: with a group %t: %s", name, want, line)
					}
				} else if !gid {
					rest += line
				}
			}
			if uids < 2 {
				t.Errorf("%s: only %d rules know the guard", name, uids)
			}
			if !want && strings.Contains(text, "48211") {
				t.Errorf("%s: a group in %s", name, text)
			}
		}
	}
}
