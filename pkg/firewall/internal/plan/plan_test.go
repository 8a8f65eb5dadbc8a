package plan

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func TestPlanErrors(t *testing.T) {
	ok := netip.MustParsePrefix("10.0.0.0/8")
	for name, c := range map[string]Config{
		"no guard":           {},
		"no group":           {GuardUID: 1},
		"no uid":             {GuardGID: 1},
		"a group and any":    {GuardUID: 1, GuardGID: 1, AnyGroup: true},
		"allow any port":     {GuardUID: 1, GuardGID: 1, Allow: []Entry{{ok, 6, 0}}},
		"allow any protocol": {GuardUID: 1, GuardGID: 1, Allow: []Entry{{ok, 0, 443}}},
		"allow icmp":         {GuardUID: 1, GuardGID: 1, Allow: []Entry{{ok, 1, 443}}},
		"allow nothing":      {GuardUID: 1, GuardGID: 1, Allow: []Entry{{Proto: 6, Port: 1}}},
		"deny icmp port":     {GuardUID: 1, GuardGID: 1, Deny: []Entry{{ok, 1, 443}}},
		"deny nothing":       {GuardUID: 1, GuardGID: 1, Deny: []Entry{{}}},
		"mixed families":     {GuardUID: 1, GuardGID: 1, Deny: []Entry{{Prefix: netip.MustParsePrefix("::ffff:0.0.0.0/90")}}},
		"inbound address":    {GuardUID: 1, GuardGID: 1, Inbound: []Entry{{ok, 6, 443}}},
		"inbound any":        {GuardUID: 1, GuardGID: 1, Inbound: []Entry{{Proto: 6}}},
		"upstream":           {GuardUID: 1, GuardGID: 1, Upstreams: []netip.AddrPort{{}}},
		"a broker's group":   {GuardUID: 1, GuardGID: 1, BrokerGID: 2},
		"a broker's port":    {GuardUID: 1, GuardGID: 1, BrokerPort4: 2},
		"groupless broker":   {GuardUID: 1, GuardGID: 1, BrokerUID: 2},
		"broker's any group": {GuardUID: 1, AnyGroup: true, BrokerUID: 2, BrokerGID: 2},
		"broker as guard":    {GuardUID: 1, GuardGID: 1, BrokerUID: 1, BrokerGID: 2},
		"broker as agent":    {GuardUID: 1, GuardGID: 1, AgentUID: 3, BrokerUID: 3, BrokerGID: 2},
		"reduced broker":     {GuardUID: 1, GuardGID: 1, Reduced: true, BrokerUID: 2, BrokerGID: 2},
		"broker to any port": {GuardUID: 1, GuardGID: 1, BrokerUID: 2, BrokerGID: 2, BrokerAllow: []Entry{{ok, 6, 0}}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Every box of a set must be free of overlaps, and they must cover what went
// in and nothing more.
func TestDisjoint(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	protos, ports := []uint8{0, 6, 17}, []uint16{0, 1, 65535}
	for round := range 300 {
		var in []Box
		for range 1 + r.IntN(12) {
			b := Box{Proto: protos[r.IntN(3)], Port: ports[r.IntN(3)]}
			if b.Proto == 0 {
				b.Port = 0
			}
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(16))})
			b.Prefix = netip.PrefixFrom(a, 28+r.IntN(5)).Masked()
			if round%7 == 0 && len(in) == 0 {
				b.Prefix = netip.MustParsePrefix("0.0.0.0/0")
			}
			in = append(in, b)
		}
		out := disjoint(in)
		for i, a := range out {
			for _, b := range out[:i] {
				if a.Prefix.Overlaps(b.Prefix) && meets(a, b) {
					t.Fatalf("%v and %v overlap, of %v", a, b, in)
				}
			}
		}
		for _, last := range []byte{0, 1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 255} {
			a := netip.AddrFrom4([4]byte{10, 0, 0, last})
			for _, proto := range []uint8{1, 6, 17} {
				for _, port := range []uint16{1, 2, 65535} {
					if g, w := covers(out, a, proto, port), covers(in, a, proto, port); g != w {
						t.Fatalf("%v %d %d: %v, not %v, by %v of %v", a, proto, port, g, w, out, in)
					}
				}
			}
		}
		slices.Reverse(in)
		if !slices.Equal(disjoint(in), out) {
			t.Fatalf("order matters: %v", in)
		}
	}
}

func meets(a, b Box) bool {
	return (a.Proto == 0 || b.Proto == 0 || a.Proto == b.Proto) && (a.Port == 0 || b.Port == 0 || a.Port == b.Port)
}

func covers(bs []Box, a netip.Addr, proto uint8, port uint16) bool {
	return slices.ContainsFunc(bs, func(b Box) bool {
		return b.Prefix.Contains(a) && meets(b, Box{Proto: proto, Port: port})
	})
}

func TestLastAddr(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8": "10.255.255.255", "10.0.0.4/30": "10.0.0.7", "1.2.3.4/32": "1.2.3.4", "0.0.0.0/0": "255.255.255.255",
		"2001:db8::/33": "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", "::1/128": "::1",
	} {
		if got := (Box{Prefix: netip.MustParsePrefix(in)}).Last(); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, not %s", in, got, want)
		}
	}
}
