package policy

import (
	"net/netip"
	"slices"
	"testing"
)

// opened says whether the kernel, which has Static, Denied and NeverPrefixes and
// nothing else, lets a packet to a pass.
func opened(p *Policy, a netip.Addr, port Port) bool {
	holds := func(s Static) bool {
		return s.Prefix.Contains(a) && (s.Port == port || s.Port == Port{})
	}
	return slices.ContainsFunc(p.Static, holds) && !slices.ContainsFunc(p.Denied, holds) &&
		!slices.ContainsFunc(NeverPrefixes(), func(n netip.Prefix) bool { return n.Contains(a) })
}

// X35: what the kernel opens by address is what the policy allows, however an
// address is wrapped.
func TestStaticIsWhatIsDecided(t *testing.T) {
	for name, list := range map[string]string{
		"wrapped": "[64:ff9b::]/96:443\n[2002::]/16:443\n[::ffff:0:0:0]/96:443\n[2000::]/3:80\n!10.0.0.0/8\n!203.0.113.66\n!198.51.100.0/24:443\n",
		"part":    "[64:ff9b::a00:0]/104:443\n!10.1.0.0/16\n",
		"single":  "[64:ff9b::a00:1]:443\n[64:ff9b:1::a00:1]:443\n!10.0.0.1\n",
		"plain":   "10.0.0.0/8:443\n[64:ff9b::]/96:443\n!10.1.0.0/16:443\n!10.1.2.3\n",
		"none":    "[64:ff9b::]/96:443\n",
	} {
		p := parse(t, "a.txt", list)
		for _, s := range []string{
			"10.0.0.0", "10.0.0.1", "10.1.2.3", "10.255.255.255", "11.0.0.0", "203.0.113.65", "203.0.113.66", "198.51.100.7", "8.8.8.8",
			"169.254.169.254", "127.0.0.1", "224.0.0.1", "168.63.129.16", "0.0.0.0", "255.255.255.255",
		} {
			inner := addr(s)
			all := []netip.Addr{inner}
			for _, w := range append(wrappers[:], netip.MustParsePrefix("64:ff9b:1::/96")) {
				all = append(all, wrap(w, netip.PrefixFrom(inner, 32)).Addr())
			}
			in := inner.As4()
			client := [16]byte{0x20, 1, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0, ^in[0], ^in[1], ^in[2], ^in[3]}
			all = append(all, netip.AddrFrom16(client))
			for _, a := range all {
				for _, port := range []Port{tcp(443), tcp(80), {UDP, 443}} {
					if got, want := opened(p, a, port), p.DecideAddr(a, port).Allowed; got && !want {
						t.Errorf("%s: %v:%v is open, and decided %v", name, a, port, p.DecideAddr(a, port).Reason)
					} else if want && !got && Classify(a) < Loopback {
						t.Errorf("%s: %v:%v is allowed, and closed", name, a, port)
					}
				}
			}
		}
	}
}

// A block in which nobody can tell where IPv4 addresses stand is not taken.
func TestBlocksOfSiteNAT64(t *testing.T) {
	for _, s := range []string{"[64:ff9b:1::]/96:443", "[64:ff9b:1::]/48", "[64:ff9b::]/32", "[64:ff9b:1::a00:0]/127"} {
		failure(t, "a.txt", s)
	}
	for _, s := range []string{"[64:ff9b:1::808:808]:443", "[64:ff9b::]/96", "[2000::]/3:443"} {
		parse(t, "a.txt", s)
	}
}

// TestHostsOfInspectedNames: an address that the hosts file has is open past the gate; that of an inspected name is
// closed to the agent, and open to the broker.
func TestHostsOfInspectedNames(t *testing.T) {
	list := "plain.test:443\nseen.test GET /x\nseen.test:22\n"
	p, err := Parse(&Bundle{Files: []File{{Name: "a.txt", Data: []byte(list)}}, Hosts: []byte("10.1.1.1 plain.test\n10.1.1.2 seen.test\n")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		p    *Policy
		a    string
		port uint16
		open bool
	}{{p, "10.1.1.1", 443, true}, {p, "10.1.1.2", 22, true}, {p, "10.1.1.2", 443, false}, {p.Broker, "10.1.1.2", 443, true}} {
		if opened(tt.p, addr(tt.a), tcp(tt.port)) != tt.open || tt.p.DecideAddr(addr(tt.a), tcp(tt.port)).Allowed != tt.open {
			t.Errorf("%s on %d: open must be %v", tt.a, tt.port, tt.open)
		}
	}
	if len(p.Warnings) != 1 || p.Warnings[0].Text != "seen.test" {
		t.Errorf("warned: %v", p.Warnings)
	}
}
