package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
)

const sample = `api.example.com
*.example.com:8443
*.sub.example.com
deep.sub.example.com:9000
deep.sub.example.com:9001
example.com private
*.blocked.example
!*.evil.blocked.example
!ssh.example.com:22
ssh.example.com:22
ssh.example.com
!api.example.com:80
time.example.net:123/udp
service:8080
github.com:22
github.com
10.0.0.0/8:5000
10.9.0.0/16:5001
!10.9.9.9
!10.9.9.8:5001
198.51.100.7
[2001:db8::]/32:443
!192.0.2.0/24
`

func TestDecide(t *testing.T) {
	p := parse(t, "a.txt", sample)
	for _, tt := range []struct {
		name    string
		port    Port
		allowed bool
		rule    string
	}{
		{"api.example.com", tcp(443), true, "a.txt:1"},
		{"API.example.com.", tcp(443), true, "a.txt:1"},
		{"api.example.com", tcp(80), false, "a.txt:12"},
		{"api.example.com", tcp(8443), true, "a.txt:2"},
		{"api.example.com", Port{UDP, 443}, false, ""},
		{"api.example.com", tcp(22), false, ""},
		{"example.com", tcp(8443), true, "a.txt:2"}, // a wildcard has the domain itself
		{"example.com", tcp(443), true, "a.txt:6"},
		{"xexample.com", tcp(8443), false, ""},
		{"sub.example.com", tcp(443), true, "a.txt:3"},
		{"a.b.sub.example.com", tcp(443), true, "a.txt:3"},
		{"a.b.sub.example.com", tcp(8443), true, "a.txt:2"},
		{"deep.sub.example.com", tcp(443), true, "a.txt:3"},
		{"deep.sub.example.com", tcp(9001), true, "a.txt:5"},
		{"deep.sub.example.com", tcp(9002), false, ""},
		{"ok.blocked.example", tcp(443), true, "a.txt:7"},
		{"evil.blocked.example", tcp(443), false, "a.txt:8"},
		{"x.evil.blocked.example", tcp(443), false, "a.txt:8"},
		{"ssh.example.com", tcp(22), false, "a.txt:9"},
		{"ssh.example.com", tcp(443), true, "a.txt:11"},
		{"time.example.net", Port{UDP, 123}, true, "a.txt:13"},
		{"time.example.net", tcp(123), false, ""},
		{"service", tcp(8080), true, "a.txt:14"},
		{"github.com", tcp(22), true, "a.txt:15"},
		{"github.com", tcp(443), true, "a.txt:16"},
		{"other.example.org", tcp(443), false, ""},
		{"com", tcp(443), false, ""},
		{"", tcp(443), false, ""},
		{".", tcp(443), false, ""},
		{"10.0.0.1", tcp(5000), false, ""}, // an address is no name
		{"2130706433", tcp(443), false, ""},
		{"a.0x7f.1", tcp(8443), false, ""},
		{"*.example.com", tcp(8443), false, ""},
		{"bad\x00.example.com", tcp(8443), false, ""},
		{"api.example.com", Port{}, false, ""},
	} {
		d := p.Decide(tt.name, tt.port)
		got := ""
		if d.Rule != nil {
			got = d.Rule.Source.String()
		}
		if d.Allowed != tt.allowed || got != tt.rule || d.Reason == "" {
			t.Errorf("%s %v: %v by %q (%s), want %v by %q", tt.name, tt.port, d.Allowed, got, d.Reason, tt.allowed, tt.rule)
		}
	}
}

// A deny rule for one port does not hide one for all of them, nor the reverse.
func TestDenyPortsOfOneName(t *testing.T) {
	for _, list := range []string{"!x.example:22\n!x.example\n", "!x.example\n!x.example:22\n"} {
		p := parse(t, "a.txt", list+"x.example:22\nx.example\n")
		for _, port := range []uint16{22, 80, 443} {
			if d := p.Decide("x.example", tcp(port)); d.Allowed || d.Rule == nil {
				t.Errorf("%q: port %d: %+v", list, port, d)
			}
		}
		if p.Lookup("x.example").Allowed || p.Admit("x.example", addr("192.0.2.1")) != nil {
			t.Errorf("%q: x.example is resolved", list)
		}
		p = parse(t, "a.txt", strings.ReplaceAll(list, "x.example", "192.0.2.1")+"192.0.2.1\n")
		if d := p.DecideAddr(addr("192.0.2.1"), tcp(443)); d.Allowed {
			t.Errorf("%q: %+v", list, d)
		}
	}
}

func TestDecideAddr(t *testing.T) {
	p := parse(t, "a.txt", sample)
	for _, tt := range []struct {
		addr    string
		port    Port
		allowed bool
		rule    string
	}{
		{"10.1.1.1", tcp(5000), true, "a.txt:17"},
		{"::ffff:10.1.1.1", tcp(5000), true, "a.txt:17"},
		{"10.1.1.1", tcp(5001), false, ""},
		{"10.9.1.1", tcp(5001), true, "a.txt:18"},
		{"10.9.1.1", tcp(5000), true, "a.txt:17"},
		{"10.9.9.9", tcp(5000), false, "a.txt:19"},
		{"10.9.9.8", tcp(5001), false, "a.txt:20"},
		{"10.9.9.8", tcp(5000), true, "a.txt:17"},
		{"64:ff9b::10.9.9.9", tcp(5000), false, "a.txt:19"}, // what is wrapped is denied too
		{"64:ff9b::10.1.1.1", tcp(5000), false, ""},         // and not allowed
		{"198.51.100.7", tcp(443), true, "a.txt:21"},
		{"198.51.100.8", tcp(443), false, ""},
		{"2001:db8:1::1", tcp(443), true, "a.txt:22"},
		{"2001:db9::1", tcp(443), false, ""},
		{"192.0.2.1", tcp(443), false, "a.txt:23"},
		{"127.0.0.1", tcp(443), false, ""},
		{"169.254.169.254", tcp(80), false, ""},
	} {
		d := p.DecideAddr(addr(tt.addr), tt.port)
		got := ""
		if d.Rule != nil {
			got = d.Rule.Source.String()
		}
		if d.Allowed != tt.allowed || got != tt.rule || d.Reason == "" {
			t.Errorf("%s %v: %v by %q (%s), want %v by %q", tt.addr, tt.port, d.Allowed, got, d.Reason, tt.allowed, tt.rule)
		}
	}
	if p.DecideAddr(netip.Addr{}, tcp(80)).Allowed {
		t.Error("no address is allowed")
	}
}

// E37: metadata is out of reach of any policy that lists it.
func TestE37Metadata(t *testing.T) {
	p := parse(t, "a.txt", "160.0.0.0/3:80\n[fd00::]/8:80\n[64:ff9b::]/96:80\nmetadata.google.internal private\n")
	for _, s := range []string{"169.254.169.254", "169.254.170.2", "168.63.129.16", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254", "2002:a9fe:a9fe::"} {
		if d := p.DecideAddr(addr(s), tcp(80)); d.Allowed {
			t.Errorf("%s is allowed by %v", s, d.Rule)
		}
		if ports := p.Admit("metadata.google.internal", addr(s)); ports != nil {
			t.Errorf("a name may resolve to %s and open %v", s, ports)
		}
	}
}

// E22: other spellings of addresses are no names, and so reach nothing.
func TestE22Spellings(t *testing.T) {
	p := parse(t, "a.txt", "*.example.com\n10.0.0.0/8\n")
	for _, s := range []string{"2130706433", "0x7f.1", "0x7F000001", "017700000001", "127.1", "127.0.0.1", "10.0.0.1", "0x", "1", "a.example.com.1", "[::1]", "::1"} {
		if d, m := p.Decide(s, tcp(443)), p.Lookup(s); d.Allowed || m.Allowed || m.Name != "" {
			t.Errorf("%s: %+v, %+v", s, d, m)
		}
		if !strings.Contains(s, ":") && strings.Count(s, ".") < 3 {
			failure(t, "a.txt", s)
		}
	}
}

func TestLookup(t *testing.T) {
	p := parse(t, "a.txt", sample+"shut.example.org:22\n!shut.example.org:22\n")
	for _, tt := range []struct {
		name, canonical string
		allowed         bool
		rule, wildcard  string
	}{
		{"API.Example.com.", "api.example.com", true, "a.txt:1", ""},
		{"x.example.com", "x.example.com", true, "a.txt:2", "a.txt:2"},
		{"x.sub.example.com", "x.sub.example.com", true, "a.txt:3", "a.txt:3"},
		{"deep.sub.example.com", "deep.sub.example.com", true, "a.txt:4", ""},
		{"ssh.example.com", "ssh.example.com", true, "a.txt:10", ""}, // one port of it is denied
		{"x.evil.blocked.example", "x.evil.blocked.example", false, "a.txt:8", ""},
		{"shut.example.org", "shut.example.org", false, "a.txt:25", ""}, // all that was open is denied
		{"time.example.net", "time.example.net", true, "a.txt:13", ""},
		{"nowhere.example", "nowhere.example", false, "", ""},
		{"10.0.0.1", "", false, "", ""},
		{"", "", false, "", ""},
	} {
		m := p.Lookup(tt.name)
		cite := func(r *Rule) string {
			if r == nil {
				return ""
			}
			return r.Source.String()
		}
		if m.Name != tt.canonical || m.Allowed != tt.allowed || cite(m.Rule) != tt.rule || cite(m.Wildcard) != tt.wildcard {
			t.Errorf("%s: %+v by %q, %q", tt.name, m, cite(m.Rule), cite(m.Wildcard))
		}
	}
}

// E09: what an allowed name may resolve to.
func TestAdmit(t *testing.T) {
	b := &Bundle{
		Files: []File{{Name: "a.txt", Data: []byte(join(
			"public.example", "inside.example private", "mixed.example", "mixed.example:8443 private",
			"*.inside.example private", "service:8080", "gateway.example:11434", "db.example:5432",
			"10.7.0.0/16:5432", "!10.8.0.0/16", "!198.51.100.1:80", "!198.51.100.2", "many.example:1", "many.example:53/udp",
			"many.example:3", "!many.example:3", "localhost",
		))}},
		Hosts: []byte("127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # loopback\n172.17.0.1  gateway.example Unlisted.example\n169.254.1.1 public.example\nnonsense\n10.9.9.9 no..name -.example\n172.17.0.1 gateway.example\n"),
	}
	p, err := Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, addr, want string }{
		{"public.example", "203.0.113.1", "80/tcp 443/tcp"},
		{"Public.example.", "203.0.113.1", "80/tcp 443/tcp"},
		{"public.example", "::ffff:203.0.113.1", "80/tcp 443/tcp"},
		{"public.example", "2606:4700::1111", "80/tcp 443/tcp"},
		{"public.example", "64:ff9b::203.0.113.1", "80/tcp 443/tcp"},
		{"public.example", "10.0.0.1", ""},
		{"public.example", "::ffff:10.0.0.1", ""},
		{"public.example", "64:ff9b::10.0.0.1", ""},
		{"public.example", "fd00::1", ""},
		{"public.example", "127.0.0.1", ""},
		{"public.example", "169.254.169.254", ""},
		{"public.example", "169.254.1.1", ""}, // not even by way of the hosts file
		{"public.example", "fe80::1%eth0", ""},
		{"inside.example", "10.0.0.1", "80/tcp 443/tcp"},
		{"inside.example", "fd00::1", "80/tcp 443/tcp"},
		{"inside.example", "203.0.113.1", "80/tcp 443/tcp"},
		{"inside.example", "127.0.0.1", ""},
		{"inside.example", "169.254.169.254", ""},
		{"inside.example", "fd00:ec2::254", ""},
		{"a.inside.example", "10.0.0.1", "80/tcp 443/tcp"},
		{"mixed.example", "203.0.113.1", "80/tcp 443/tcp 8443/tcp"},
		{"mixed.example", "10.0.0.1", "8443/tcp"},
		{"service", "172.18.0.5", "8080/tcp"},
		{"service", "127.0.0.1", ""},
		{"service", "169.254.169.254", ""},
		{"gateway.example", "172.17.0.1", "11434/tcp"},
		{"gateway.example", "172.17.0.2", ""},
		{"db.example", "10.7.1.1", "5432/tcp"}, // an entry names the address
		{"db.example", "10.6.1.1", ""},
		{"inside.example", "10.8.0.1", ""},
		{"public.example", "198.51.100.1", "443/tcp"},
		{"public.example", "198.51.100.2", ""},
		{"many.example", "203.0.113.1", "1/tcp 53/udp"},
		{"localhost", "127.0.0.1", ""},
		{"unlisted.example", "172.17.0.1", ""},
		{"203.0.113.1", "203.0.113.1", ""},
	} {
		var got []string
		for _, port := range p.Admit(tt.name, addr(tt.addr)) {
			got = append(got, port.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s at %s: %q, want %q", tt.name, tt.addr, got, tt.want)
		}
	}
	if p.Admit("public.example", netip.Addr{}) != nil {
		t.Error("a name opens no address at all")
	}
	for _, name := range []string{"nonsense..", "-.example", "", "169.254.1.1"} {
		if got := p.Hosts(name); got != nil {
			t.Errorf("hosts of %q, which is no name: %v", name, got)
		}
	}
	if got := p.Hosts("GATEWAY.example"); !slices.Equal(got, []netip.Addr{addr("172.17.0.1")}) {
		t.Errorf("hosts: %v", got)
	}
	if got := fmt.Sprint(statics(p.Static)); got != "[10.7.0.0/16 5432/tcp a.txt:9 172.17.0.1/32 11434/tcp a.txt:7]" {
		t.Errorf("static: %s", got)
	}
	if got := fmt.Sprint(statics(p.Denied)); got != "[10.8.0.0/16 all a.txt:10 198.51.100.1/32 80/tcp a.txt:11 198.51.100.2/32 all a.txt:12]" {
		t.Errorf("denied: %s", got)
	}
	if d := p.DecideAddr(addr("172.17.0.1"), tcp(11434)); !d.Allowed || d.Rule.Name != "gateway.example" {
		t.Errorf("the address of the hosts file: %+v", d)
	}
}

func statics(list []Static) []string {
	var out []string
	for _, s := range list {
		port := s.Port.String()
		if s.Port == (Port{}) {
			port = "all"
		}
		out = append(out, s.Prefix.String()+" "+port+" "+s.Rule.Source.String())
	}
	return out
}

func TestNamesAndRequired(t *testing.T) {
	p := parse(t, "a.txt", "b.example\nA.example\nb.example:22\n*.w.example\n!no.example\nno.example\nc.example required\n@claude\n@claude\napi.anthropic.com\n192.0.2.1:443 required\nc.example required\n")
	var names, required []string
	for _, r := range p.Names {
		names = append(names, r.Name)
	}
	for _, r := range p.Required {
		required = append(required, r.Target())
	}
	if got := strings.Join(names, " "); got != "b.example a.example c.example api.anthropic.com platform.claude.com claude.ai claude.com" {
		t.Errorf("names: %s", got)
	}
	if got := strings.Join(required, " "); got != "c.example api.anthropic.com 192.0.2.1" {
		t.Errorf("required: %s", got)
	}
	want := Counts{Files: 1, Rules: 14, Names: 7, Wildcards: 1, Addresses: 1, Denied: 1, Required: 3}
	if got := p.Counts(); got != want {
		t.Errorf("counts: %+v, want %+v", got, want)
	}
	p = parse(t, "a.txt", "a.example direct\na.example private\nb.example:8443 direct\nc.example GET /x\nc.example POST /y\nc.example:8443 read\n")
	if got := p.Counts(); got.Direct != 1 || got.Inspected != 2 {
		t.Errorf("counts: %+v", got)
	}
}

func TestContradictions(t *testing.T) {
	p := parse(t, "a.txt", join(
		"@github", "!gist.github.com", // what deny is for: no warning
		"a.example", "!*.a.example",
		"*.b.example", "!b.example", // only a part
		"*.c.example", "!*.c.example",
		"d.example", "!d.example:80", // only a port
		"10.1.0.0/16", "!10.0.0.0/8",
		"10.2.0.0/16", "@claude", "!api.anthropic.com",
		"!claude.ai",                      // part of a preset
		"172.16.0.0/15", "!172.16.0.0/16", // only a part
	))
	want := join(
		`a.txt:3:1: has no effect: !*.a.example at a.txt:4 denies it: "a.example"`,
		`a.txt:7:1: has no effect: !*.c.example at a.txt:8 denies it: "*.c.example"`,
		`a.txt:11:1: has no effect: !10.0.0.0/8 at a.txt:12 denies it: "10.1.0.0/16"`,
		`a.txt:13:1: has no effect: !10.0.0.0/8 at a.txt:12 denies it: "10.2.0.0/16"`,
		`a.txt:14:1: has no effect: !api.anthropic.com at a.txt:15 denies it: "api.anthropic.com required unbrokered"`,
	)
	if got := warnings(p); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What people are told about a decision.
func TestReasons(t *testing.T) {
	p := parse(t, "a.txt", "a.example:22\n!b.example\n10.1.0.0/16:80\n!192.0.2.9")
	for _, tt := range []struct {
		target, want string
		port         uint16
	}{
		{"a.example", reasonAllowed, 22},
		{"a.example", reasonPort, 443},
		{"b.example", reasonDenied, 443},
		{"c.example", reasonUnlisted, 443},
		{"-.example", "a label begins or ends with a hyphen", 443},
		{"10.1.0.1", reasonAllowed, 80},
		{"10.1.0.1", reasonPrivate, 443},
		{"192.0.2.8", reasonUnlisted, 443},
		{"192.0.2.9", reasonDenied, 443},
		{"127.0.0.1", reasonLoopback, 80},
		{"169.254.169.254", reasonNever, 80},
	} {
		d := p.Decide(tt.target, tcp(tt.port))
		if a, err := netip.ParseAddr(tt.target); err == nil {
			d = p.DecideAddr(a, tcp(tt.port))
		}
		if d.Reason != tt.want {
			t.Errorf("%s:%d: %q, want %q", tt.target, tt.port, d.Reason, tt.want)
		}
	}
}

func TestEmptyPolicyAllowsNothing(t *testing.T) {
	p, err := Parse(&Bundle{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.Decide("example.com", tcp(443)).Allowed || p.Lookup("example.com").Allowed || p.DecideAddr(addr("192.0.2.1"), tcp(443)).Allowed ||
		p.Admit("example.com", addr("192.0.2.1")) != nil || p.Names != nil || p.Static != nil {
		t.Error("an empty policy allows something")
	}
}

func TestConcurrentUse(t *testing.T) {
	p := parse(t, "a.txt", sample)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				p.Decide("a.b.sub.example.com", tcp(443))
				p.Lookup("ssh.example.com")
				p.Admit("deep.sub.example.com", addr("192.0.2.9"))
				p.Report()
			}
		})
	}
	wg.Wait()
}

// The words for port 80 add up over all entries about a name, and deny nothing.
func TestUpgradesAndProxies(t *testing.T) {
	p := parse(t, "a.txt", join("plain.example", "plain.example:80 upgrade", "*.wide.example upgrade", "in.wide.example", "tls.example:443 upgrade",
		"proxy.example private connect", "gone.example upgrade", "!gone.example"))
	for name, line := range map[string]int{
		"plain.example": 2, "PLAIN.example.": 2, "wide.example": 3, "in.wide.example": 3, "other.wide.example": 3,
		"tls.example": 0, "proxy.example": 0, "no.example": 0, "": 0, "10.0.0.1": 0, "gone.example": 7,
	} {
		r := p.Upgrades(name, tcp(80))
		got := 0
		if r != nil {
			got = r.Source.Line
		}
		if got != line {
			t.Errorf("%q: by line %d, want %d", name, got, line)
		}
		if r := p.Upgrades(name, tcp(443)); r != nil {
			t.Errorf("%q: on port 443 by %v", name, r)
		}
	}
	if p.Decide("gone.example", tcp(80)).Allowed {
		t.Error("a flag opens what is denied")
	}
	if got := p.Proxies; len(got) != 1 || got[0].Name != "proxy.example" || !got[0].Private {
		t.Errorf("proxies %v", got)
	}
	denied, err := Parse(&Bundle{Files: []File{{Name: "a.txt", Data: []byte("!@p")}}}, fsys("p.txt", "a.example upgrade connect\n"))
	if err != nil || denied.Upgrades("a.example", tcp(80)) != nil || len(denied.Proxies) != 0 {
		t.Errorf("a denied preset leaves its flags: %v", err)
	}
}
