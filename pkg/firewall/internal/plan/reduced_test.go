package plan

import (
	"net/netip"
	"slices"
	"testing"
)

// reducedConfig uses every field that counts in a reduced plan.
func reducedConfig() Config {
	entry := func(prefix string, proto uint8, port uint16) Entry {
		return Entry{netip.MustParsePrefix(prefix), proto, port}
	}
	return Config{
		Reduced: true, GuardUID: 990, GuardGID: 48211, AgentUID: 1000, DNSPort4: 41053, DNSPort6: 41054, GatePort4: 41080, GatePort6: 41081,
		Relayed:   []uint16{443, 80, 22, 443},
		Upstreams: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:53"), netip.MustParseAddrPort("[2001:db8::53]:853")},
		Allow:     []Entry{entry("10.1.0.0/16", 6, 443), entry("10.2.0.0/16", 6, 5432), entry("2001:db8:1::/48", 6, 5432)},
		Deny:      []Entry{entry("10.1.2.0/24", 0, 0), entry("192.168.0.0/16", 0, 25)},
		Local: []netip.Prefix{
			netip.MustParsePrefix("172.17.0.2/16"), netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128"),
			netip.MustParsePrefix("fe80::2/64"), netip.MustParsePrefix("2001:db8:2::2/64"),
		},
	}
}

// TestReducedPlanOpens goes through what may leave: from anyone but the guard only
// what stays here or on the own links, and from inbound ports what can't open a
// connection; from the guard only TCP.
func TestReducedPlanOpens(t *testing.T) {
	c := reducedConfig()
	c.Inbound = []Entry{{Proto: 6, Port: 8080}}
	p, err := New(c)
	must(t, err)
	has := func(r Rule, m Match) bool { return slices.Contains(r.Matches, m) }
	near := func(m Match) bool {
		p, ok := m.Value.(netip.Prefix)
		return ok && m == dst(p) && (p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() || p.Addr().IsLinkLocalMulticast() ||
			slices.ContainsFunc(c.Local, func(l netip.Prefix) bool { return l.Addr() == p.Addr() || l.Masked() == p && p.Addr().Is6() }))
	}
	reply := []Match{tcp, sport(8080)}
	accepts := 0
	for _, ch := range p.Chains {
		if ch.Nat || ch.Hook == "input" || ch.Hook == "prerouting" {
			continue
		}
		closed := false // to connections from the inbound port
		for i, r := range ch.Rules {
			closed = closed || slices.Equal(r.Matches, append(slices.Clone(reply), opening)) && r.Verdict == jump("refuse")
			if r.Verdict == jump("guard") && !(has(r, uid(c.GuardUID)) && has(r, gid(c.GuardGID))) {
				t.Errorf("anyone passes for the guard: %s", r)
			}
			if r.Verdict != accept {
				continue
			}
			accepts++
			switch {
			case ch.Name == "guard" && has(r, tcp):
			case ch.Name != "guard" && (has(r, staying) || slices.ContainsFunc(r.Matches, near)):
			case ch.Name != "guard" && closed && slices.Equal(r.Matches, reply):
			default:
				t.Errorf("chain %s, rule %d opens too much: %s", ch.Name, i+1, r)
			}
		}
	}
	if accepts < 10 {
		t.Errorf("only %d rules accept", accepts)
	}
}

func TestReducedPlanErrors(t *testing.T) {
	ok := netip.MustParsePrefix("10.0.0.0/8")
	for name, change := range map[string]func(*Config){
		"no guard":    func(c *Config) { c.GuardUID = 0 },
		"no group":    func(c *Config) { c.GuardGID = 0 },
		"udp allowed": func(c *Config) { c.Allow = []Entry{{ok, 17, 123}} },
		"udp inbound": func(c *Config) { c.Inbound = []Entry{{Proto: 17, Port: 53}} },
	} {
		c := reducedConfig()
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
