package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
)

var fuzzSeeds = []string{
	sample,
	"@claude\n!@github\n*.example.com:53/udp private\n",
	"a.example upgrade\n*.a.example:80 upgrade\nb.example:80 connect private\n!b.example:80\nc.example:443 upgrade connect\n",
	"\ufeffa.example\r\n\tb.example \r\n",
	"https://a.example/x\n0x7f.1\n*.com\n[::1]:80\n::ffff:1.2.3.4\nmünchen.example\n",
	"1.2.3.4/0\n[2001:db8::]/32:443\n![::]/0\n160.0.0.0/3\nfd00:ec2::254\n",
}

func FuzzParseText(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s, "a.example.com", uint32(0x0a000001))
	}
	f.Fuzz(func(t *testing.T, data, name string, v4 uint32) {
		check(t, "fuzz.txt", data, name, v4)
	})
}

func FuzzParseYAML(f *testing.F) {
	for _, s := range append(fuzzSeeds,
		"services: [claude]\ndomains:\n - a.example\n - '*.b.example private'\ndeny: [c.example:22]\nnetworks: [10.0.0.0/8]\n",
		"a: &x [*x]\n", "domains: [!a, *b, @c]\n", "inbound: [3000]\nuser: a\ncommand: sh\nenv: {A: b}\n",
		"selftest: {reach: [a.example]}\ndns: {upstream: ['tls://192.0.2.1#a.example'], max_ttl: 5m}\nlimits: {leases: 7}\nlog: {max_size: 1MiB}\n",
	) {
		f.Add(s, "b.example", uint32(0xa9fea9fe))
	}
	f.Fuzz(func(t *testing.T, data, name string, v4 uint32) {
		check(t, "fuzz.yaml", data, name, v4)
	})
}

// check holds what is true of every policy.
func check(t *testing.T, file, data, name string, v4 uint32) {
	p, err := Parse(&Bundle{Files: []File{{Name: file, Data: []byte(data)}}, Hosts: []byte(data)}, allowlist.Files)
	if err != nil {
		if p != nil || err.Error() == "" || len(err.(ErrorList)) > maxErrors+1 {
			t.Fatalf("a policy with errors: %v", err)
		}
		return
	}
	v := netip.AddrFrom4([4]byte{byte(v4 >> 24), byte(v4 >> 16), byte(v4 >> 8), byte(v4)})
	names := []string{name}
	for _, r := range p.rules {
		if r.Name != "" {
			names = append(names, r.Name, "x."+r.Name)
		}
	}
	for _, n := range names[:min(len(names), 50)] {
		for _, port := range []Port{{TCP, 443}, {TCP, 80}, {UDP, 53}} {
			d := p.Decide(n, port)
			if d.Reason == "" || d.Allowed && (d.Rule == nil || d.Rule.Deny) {
				t.Fatalf("%q %v: %+v", n, port, d)
			}
			if r := p.Upgrades(n, port); r != nil && (!r.Upgrade || r.Deny || port != HTTP) {
				t.Fatalf("%q may switch protocols on %v by %+v", n, port, r)
			}
			if m := p.Lookup(n); d.Allowed && !m.Allowed {
				t.Fatalf("%q is allowed on %v, but not resolved: %+v", n, port, m)
			}
		}
		for _, a := range []netip.Addr{v, netip.AddrFrom16(v.As16())} {
			ports := p.Admit(n, a)
			if len(ports) > 0 && Classify(a) > Private {
				t.Fatalf("%q opens %v, which is %v", n, a, Classify(a))
			}
			for _, port := range ports {
				if !p.Decide(n, port).Allowed {
					t.Fatalf("%q opens %v at %v, but is not allowed there", n, port, a)
				}
			}
		}
	}
	if d := p.DecideAddr(v, Port{TCP, 443}); d.Allowed && (d.Rule == nil || d.Rule.Deny || Classify(v) > Private) {
		t.Fatalf("%v: %+v", v, d)
	}
	for _, r := range p.Proxies {
		if r.Deny || r.Wildcard || r.Name == "" || !slices.Contains(r.Ports, HTTP) {
			t.Fatalf("a proxy: %+v", r)
		}
	}
	for _, s := range p.Static {
		if s.Rule == nil || s.Port.Number == 0 || s.Prefix != s.Prefix.Masked() || s.Prefix.Bits() == 0 {
			t.Fatalf("static %+v", s)
		}
	}
	text := effective(t, p)
	again, err := Parse(&Bundle{Files: []File{{Name: "again.txt", Data: []byte(text)}}}, nil)
	if err != nil {
		t.Fatalf("what is written can't be read: %v\n%s", err, text)
	}
	if bare(again) != bare(p) {
		t.Fatalf("what is written reads differently:\n%s\nbut was\n%s", bare(again), strings.TrimSpace(bare(p)))
	}
}
