package firewall

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func TestPlanGolden(t *testing.T) {
	entry := func(prefix string, proto uint8, port uint16) Entry {
		return Entry{netip.MustParsePrefix(prefix), proto, port}
	}
	typical := Config{
		GuardUID: 990, GuardGID: 48211, DNSPort4: 41053, DNSPort6: 41054, DropGroup: 7,
		Upstreams: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:53"), netip.MustParseAddrPort("[2001:db8::53]:53")},
		Allow:     []Entry{entry("10.200.200.1/32", 6, 11434), entry("10.1.0.0/16", 6, 443), entry("2001:db8:1::/48", 6, 443), entry("10.9.9.9/32", 17, 123)},
	}
	for name, change := range map[string]func(*Config){
		"sealed":    func(c *Config) { *c = Config{Sealed: true, DropGroup: 7, Allow: c.Allow} },
		"typical":   func(*Config) {},
		"noipv6dns": func(c *Config) { c.DNSPort6 = 0 },
		"inbound": func(c *Config) {
			c.Inbound = []Entry{{Proto: 6, Port: 8080}, {Proto: 17, Port: 3000}, {Proto: 6, Port: 3000}, {Proto: 6, Port: 3000}}
		},
		"denied": func(c *Config) {
			c.Deny = []Entry{entry("10.1.2.0/24", 0, 0), entry("10.1.0.0/16", 6, 25), entry("192.168.0.0/16", 0, 53), entry("fc00::/7", 0, 0), entry("169.254.9.9/32", 0, 0)}
		},
		"engine": func(c *Config) {
			c.Upstreams = append(c.Upstreams, netip.MustParseAddrPort("127.0.0.11:53"), netip.MustParseAddrPort("127.0.0.11:53"))
		},
		"otherport": func(c *Config) { // none but the guard's packets may be part of the guard's flows
			c.Upstreams = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:853"), netip.MustParseAddrPort("[2001:db8::53]:5353")}
		},
		"gated":  func(c *Config) { c.GatePort4, c.GatePort6, c.Gated = 41080, 41081, []uint16{443, 80, 443} },
		"nogate": func(c *Config) { c.GatePort4, c.Gated = 41080, []uint16{443} }, // no IPv6 listener
		"nolog":  func(c *Config) { c.DropGroup = 0 },
		"zoned":  func(c *Config) { c.GuardZone = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := typical
			change(&c)
			p, err := NewPlan(c)
			must(t, err)
			golden(t, name, p.String())
			golden(t, "xt/"+name, xtText(t, p))
			// The order of a policy's lines is no part of the plan.
			slices.Reverse(c.Allow)
			slices.Reverse(c.Deny)
			slices.Reverse(c.Inbound)
			slices.Reverse(c.Upstreams)
			slices.Reverse(c.Gated)
			if q, err := NewPlan(c); err != nil || q.String() != p.String() {
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
	} {
		if _, err := NewPlan(c); err == nil {
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
		var in []box
		for range 1 + r.IntN(12) {
			b := box{proto: protos[r.IntN(3)], port: ports[r.IntN(3)]}
			if b.proto == 0 {
				b.port = 0
			}
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(16))})
			b.prefix = netip.PrefixFrom(a, 28+r.IntN(5)).Masked()
			if round%7 == 0 && len(in) == 0 {
				b.prefix = netip.MustParsePrefix("0.0.0.0/0")
			}
			in = append(in, b)
		}
		out := disjoint(in)
		for i, a := range out {
			for _, b := range out[:i] {
				if a.prefix.Overlaps(b.prefix) && meets(a, b) {
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

func meets(a, b box) bool {
	return (a.proto == 0 || b.proto == 0 || a.proto == b.proto) && (a.port == 0 || b.port == 0 || a.port == b.port)
}

func covers(bs []box, a netip.Addr, proto uint8, port uint16) bool {
	return slices.ContainsFunc(bs, func(b box) bool {
		return b.prefix.Contains(a) && meets(b, box{proto: proto, port: port})
	})
}

func TestLastAddr(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8": "10.255.255.255", "10.0.0.4/30": "10.0.0.7", "1.2.3.4/32": "1.2.3.4", "0.0.0.0/0": "255.255.255.255",
		"2001:db8::/33": "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", "::1/128": "::1",
	} {
		if got := lastAddr(netip.MustParsePrefix(in)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, not %s", in, got, want)
		}
	}
}

func BenchmarkNewPlan10000(b *testing.B) {
	c := Config{GuardUID: 1, GuardGID: 1}
	for i := range 10000 {
		c.Allow = append(c.Allow, Entry{single(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})), 6, 443})
	}
	for b.Loop() {
		if _, err := NewPlan(c); err != nil {
			b.Fatal(err)
		}
	}
}
