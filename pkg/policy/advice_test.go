package policy

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func TestRefusal(t *testing.T) {
	p, err := Parse(&Bundle{Files: []File{
		{Name: "allowlist.txt", Data: []byte("ok.example\n!bad.example\n")}, {Name: "policy.yaml", Data: []byte("broker: {openai: }\n")},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"new.example":      "not in the allowlist: agent-init explain new.example",
		"api.openai.com":   "reached through the broker alone: agent-init explain api.openai.com",
		"bad.example":      "denied by allowlist.txt:2: agent-init explain bad.example",
		"\x1b[2J.example":  "not in the allowlist: agent-init explain NAME",
		"two words.exampl": "not in the allowlist: agent-init explain NAME",
		"":                 "not in the allowlist: agent-init explain NAME",
	} {
		if got := p.Refusal(name, p.Lookup(name).Rule); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// A line that is proposed allows what it was proposed for.
func TestLineFor(t *testing.T) {
	const list = "ok.example\nssh.example:22\n!bad.example\n*.wild.example\n!no.wild.example\n!45.30.0.9\n10.1.0.0/16:80\nhalf.example:22\n!half.example:22"
	p := parse(t, "allowlist.txt", list)
	for _, tc := range []struct {
		name string
		port Port
		want string
	}{
		{"ok.example", tcp(443), ""},
		{"OK.example.", tcp(8443), "ok.example:8443"},
		{"ssh.example", tcp(443), "ssh.example:443"},
		{"new.example", tcp(443), "new.example"},
		{"new.example", tcp(80), "new.example"},
		{"new.example", tcp(22), "new.example:22"},
		{"new.example", Port{UDP, 443}, "new.example:443/udp"},
		{"bad.example", tcp(443), ""},
		{"no.wild.example", tcp(443), ""},
		{"a.wild.example", tcp(22), "a.wild.example:22"},
		{"half.example", tcp(22), ""},
		{"half.example", tcp(443), "half.example"},
		{"-.example", tcp(443), ""},
		{"-.example", tcp(22), ""},
		{"192.0.2.1", tcp(443), ""},
	} {
		got := p.LineFor(tc.name, netip.Addr{}, tc.port)
		if got != tc.want {
			t.Errorf("%s %v: %q, want %q", tc.name, tc.port, got, tc.want)
		}
		if got != "" && !parse(t, "allowlist.txt", list+"\n"+got).Decide(tc.name, tc.port).Allowed {
			t.Errorf("%s %v: %q does not allow it", tc.name, tc.port, got)
		}
	}
	for _, tc := range []struct {
		addr string
		port Port
		want string
	}{
		{"45.30.0.1", tcp(443), "45.30.0.1:443"},
		{"2a0f:30::1", Port{UDP, 53}, ""}, // the guard's
		{"2a0f:30::1", Port{UDP, 54}, "[2a0f:30::1]:54/udp"},
		{"::ffff:45.30.0.1", tcp(443), "45.30.0.1:443"},
		{"45.30.0.9", tcp(443), ""},
		{"10.1.2.3", tcp(80), ""},
		{"10.1.2.3", tcp(81), "10.1.2.3:81"},
		{"169.254.169.254", tcp(80), ""},
		{"127.0.0.1", tcp(80), ""},
	} {
		got := p.LineForAddr(addr(tc.addr), tc.port)
		if got != tc.want {
			t.Errorf("%s %v: %q, want %q", tc.addr, tc.port, got, tc.want)
		}
		if got != "" && !parse(t, "allowlist.txt", list+"\n"+got).DecideAddr(addr(tc.addr), tc.port).Allowed {
			t.Errorf("%s %v: %q does not allow it", tc.addr, tc.port, got)
		}
	}
}

func TestPorts(t *testing.T) {
	p := parse(t, "allowlist.txt", "ok.a.example\n*.a.example:22\nok.a.example:53/udp\n!ok.a.example:80\nno.example\n!no.example")
	for name, want := range map[string][]Port{
		"OK.a.example.":  {tcp(22), tcp(443), {UDP, 53}},
		"new.a.example":  {tcp(22)},
		"no.example":     nil,
		"-.a.example":    nil,
		"ok.a.example.b": nil,
	} {
		if got := p.Ports(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A policy that was published decides as the original does, and cites the same
// places.
func TestRebuild(t *testing.T) {
	p := parse(t, "allowlist.d/a:b.txt", "ok.example\n@github\n!gist.github.com\n*.wild.example:8443 private\n[2001:db8::]/32:53/udp\n10.0.0.0/8\na.example:22\na.example required\nx:8080")
	var rules []Entry
	for r := range p.Rules() {
		// As it travels: what is left out is made from the rest.
		data, err := json.Marshal(r.Entry())
		var back Entry
		if err == nil {
			err = json.Unmarshal(data, &back)
		}
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, back)
	}
	q, err := Rebuild(rules, []byte("10.0.0.7 host.example ok.example"), Resolv{}, nil, route.Proxy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ok.example", "github.com", "gist.github.com", "a.wild.example", "a.example", "x", "none.example"} {
		for _, port := range []Port{tcp(443), tcp(80), tcp(22), tcp(8443), tcp(8080), {UDP, 53}} {
			a, b := p.Decide(name, port), q.Decide(name, port)
			if a.Allowed != b.Allowed || a.Reason != b.Reason || (a.Rule == nil) != (b.Rule == nil) {
				t.Errorf("%s %v: %+v and %+v", name, port, a, b)
			}
			if a.Rule != nil && b.Rule != nil && (a.Rule.Source.String() != b.Rule.Source.String() || a.Rule.Preset != b.Rule.Preset) {
				t.Errorf("%s %v: %+v and %+v", name, port, a.Rule, b.Rule)
			}
		}
	}
	if got := q.Hosts("ok.example"); len(got) != 1 {
		t.Errorf("hosts: %v", got)
	}
	for _, bad := range []string{"@github", "", "a b", "*.com"} {
		if _, err := Rebuild([]Entry{{Rule: bad, Source: "f:1"}}, nil, Resolv{}, nil, route.Proxy{}, nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
