package inspect

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// wouldPass says whether what an event tells of would pass by a policy: whose says whose its address is.
func wouldPass(p *policy.Policy, e audit.Event, whose string) bool {
	a, err := netip.ParseAddr(e.IP)
	port := policy.Port{Proto: policy.TCP, Number: e.Port}
	if e.Proto == "udp" {
		port.Proto = policy.UDP
	}
	switch {
	case e.Kind == audit.DNS && err == nil:
		return len(p.Admit(e.Name, a)) > 0
	case e.Kind == audit.DNS:
		return p.Lookup(e.Name).Allowed
	case e.Kind == audit.Broker:
		i := route.FindInspected(p.Settings.Inspected, e.Name, e.Port)
		if i == nil {
			return false
		}
		_, refusal := judge.NewRules(i).Judge(e.Method, e.Path, "", http.Header{})
		return refusal == nil
	case e.Kind == audit.Drop && whose != "":
		return slices.Contains(p.Admit(whose, a), port)
	case e.Kind == audit.Drop:
		return p.DecideAddr(a, port).Allowed
	}
	return p.Decide(e.Name, port).Allowed
}

// TestProposalsHelp: each line that is proposed for a refusal can stand beside the policy, and with it the very same passes.
// What no line would allow has none.
func TestProposalsHelp(t *testing.T) {
	pod := policy.Resolv{Search: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local"}, Ndots: 5}
	policies := map[string]*policy.Bundle{
		"a list": {Files: []policy.File{{Name: "allowlist.txt", Data: []byte(`ok.example
*.wild.example:5432
inner.corp.internal private
db:5432
full.ns.svc.cluster.local:8080 private
api.example GET /a/**
api.example:8443 GET /a/**
!api.example * /secret/**
*.insp.example read
!bad.example
!short
!10.6.0.0/16
!half.example:22
half.example:80
`)}}, Resolv: pod},
		"below a ceiling": {Resolv: pod, Files: []policy.File{{Name: "allowlist.txt", Data: []byte("ok.example\ndb:5432\n")}},
			Ceiling: []policy.File{{Name: "c.txt", Data: []byte("ok.example\nnew.example.org:443\nnew.example.org:22\ndb:5432\nweb\n*.corp.internal:443\n!bad.example\n")}}},
		"by a proxy": {Resolv: pod, Files: []policy.File{{Name: "allowlist.txt", Data: []byte("ok.example\n")},
			{Name: "policy.yaml", Data: []byte("upstream_proxy: {to: \"http://proxy.corp.internal:3128\"}\n")}}},
		"with a route": {Files: []policy.File{{Name: "allowlist.txt", Data: []byte("ok.example\n")},
			{Name: "policy.yaml", Data: []byte("broker: {openai: , mine: {to: \"http://llm:8000\", private: true, credential: none, allow: [GET /**]}}\n")}}},
	}
	dns := func(name string) audit.Event { return audit.Event{Kind: audit.DNS, Name: name} }
	drop := func(ip string, port uint16, proto string) audit.Event {
		return audit.Event{Kind: audit.Drop, IP: ip, Port: port, Proto: proto}
	}
	asks := func(kind audit.Kind, name string, port uint16) audit.Event {
		return audit.Event{Kind: kind, Name: name, Port: port, Proto: "tcp", IP: "45.30.0.1"}
	}
	request := func(name string, port uint16, method, path string) audit.Event {
		return audit.Event{Kind: audit.Broker, Name: name, Port: port, Method: method, Path: path, Reason: "path: no rule"}
	}
	const none, some = "", "*"
	for _, tc := range []struct {
		what  string
		whose string // has the address
		e     audit.Event
		want  string // by the list
	}{
		{"an ordinary name", "", dns("new.example.org"), "new.example.org"},
		{"a short name", "", dns("web"), "web"},
		{"one of two labels", "", dns("web.other"), "web.other private"},
		{"a full name", "", dns("web.other.svc.cluster.local"), "web.other.svc.cluster.local private"},
		{"a name of the site", "", dns("git.corp.internal"), "git.corp.internal private"},
		{"a full form of a short entry", "", dns("db.cluster.local"), "db.cluster.local private"},
		{"another type of an allowed name", "", dns("db"), none},
		{"the short form of a full entry", "", dns("full"), none},
		{"a denied name", "", dns("bad.example"), none},
		{"a full form of a denied name", "", dns("short.ns.svc.cluster.local"), none},
		{"Firefox's canary", "", dns("use-application-dns.net"), none},
		{"a reverse look-up", "", dns("1.0.30.45.in-addr.arpa"), none},
		{"no name", "", dns("a b"), none},
		{"a private answer", "", audit.Event{Kind: audit.DNS, Name: "ok.example", IP: "10.0.0.1"}, "ok.example private"},
		{"a private answer below a wildcard", "", audit.Event{Kind: audit.DNS, Name: "a.wild.example", IP: "10.0.0.1"}, "a.wild.example:5432 private"},
		{"a private answer of an inspected name", "", audit.Event{Kind: audit.DNS, Name: "a.insp.example", IP: "10.0.0.1"}, "a.insp.example read private"},
		{"a denied answer", "", audit.Event{Kind: audit.DNS, Name: "ok.example", IP: "10.6.0.1"}, none},
		{"a metadata answer", "", audit.Event{Kind: audit.DNS, Name: "ok.example", IP: "169.254.169.254"}, none},
		{"the name of a handshake", "", asks(audit.Connect, "new.example.org", 443), "new.example.org"},
		{"of plain HTTP", "", asks(audit.HTTP, "new.example.org", 80), "new.example.org"},
		{"a short one of plain HTTP", "", asks(audit.HTTP, "web", 80), "web"},
		{"the short form of a full entry, another port", "", asks(audit.HTTP, "full", 80), "full.ns.svc.cluster.local:80 private"},
		{"an allowed name's port 80", "", asks(audit.HTTP, "api.example", 80), "api.example:80 read"},
		{"a denied port", "", asks(audit.Connect, "half.example", 22), none},
		{"a port of an allowed name", "ok.example", drop("45.30.0.9", 22, "tcp"), "ok.example:22"},
		{"a port of a short name", "db", drop("10.5.5.5", 8080, "tcp"), "db:8080"},
		{"a port of a full name", "full.ns.svc.cluster.local", drop("10.5.5.6", 22, "tcp"), "full.ns.svc.cluster.local:22 private"},
		{"QUIC of an allowed name", "ok.example", drop("45.30.0.9", 443, "udp"), "ok.example:443/udp"},
		{"QUIC of an inspected name", "a.insp.example", drop("45.30.0.9", 443, "udp"), none},
		{"a plain port of a name with denied requests", "api.example", drop("45.30.0.9", 22, "tcp"), none},
		{"an address", "", drop("45.30.0.1", 8443, "tcp"), "45.30.0.1:8443"},
		{"an address, UDP", "", drop("2a0f:30::1", 4433, "udp"), "[2a0f:30::1]:4433/udp"},
		{"a private address", "", drop("10.7.0.1", 5432, "tcp"), "10.7.0.1:5432"},
		{"a denied address", "", drop("10.6.0.1", 5432, "tcp"), none},
		{"metadata", "", drop("169.254.169.254", 80, "tcp"), none},
		{"another DNS server", "", drop("45.30.0.1", 53, "udp"), none},
		{"a path", "", request("api.example", 443, "GET", "/b"), "api.example GET /b"},
		{"a method", "", request("api.example", 8443, "PUT", "/a/x"), "api.example:8443 PUT /a/x"},
		{"a denied path", "", request("api.example", 443, "GET", "/secret/x"), none},
		{"a path below an inspected wildcard", "", request("a.insp.example", 443, "POST", "/x"), "a.insp.example POST /x"},
		{"the host of a route", "", dns("api.openai.com"), some},
		{"the port of a route's short host", "", asks(audit.HTTP, "llm", 8000), some},
		{"the proxy", "", asks(audit.Connect, "proxy.corp.internal", 3128), some},
	} {
		for name, b := range policies {
			p, err := policy.Parse(b, allowlist.Files)
			if err != nil {
				t.Fatal(name, err)
			}
			s := newProposals(published{policy: p})
			if tc.whose != "" {
				s.Add(audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: tc.whose, IP: tc.e.IP})
			}
			e := tc.e
			e.Time, e.Verdict = noon, audit.Deny
			s.Add(e)
			lines := s.Since(time.Time{}).Lines
			got := ""
			helps := func(by, line string) {
				with := *b
				with.Files = append(slices.Clone(b.Files), policy.File{Name: "suggested.txt", Data: []byte(line + "\n")})
				q, err := policy.Parse(&with, allowlist.Files)
				switch {
				case err != nil:
					t.Errorf("%s, %s: %q, by %s, is refused: %v", name, tc.what, line, by, err)
				case wouldPass(p, e, tc.whose) && e.Kind != audit.Broker:
					t.Errorf("%s, %s: it passes without %q, by %s", name, tc.what, line, by)
				case !wouldPass(q, e, tc.whose):
					t.Errorf("%s, %s: %q, by %s, does not help", name, tc.what, line, by)
				}
			}
			for _, g := range lines {
				got = g.Line
				helps("suggest", got)
			}
			if to, port, ok := subjectOf(e); ok && e.Kind != audit.Broker && !(e.Kind == audit.DNS && e.IP != "") { // as explain has it
				if to.port = (policy.Port{}); e.Port != 0 {
					to.port = port
				}
				if x := explainSubject(published{policy: p}, to, noon); x.ToAllow != nil && tc.whose == "" && (e.Kind != audit.DNS || !p.Lookup(e.Name).Allowed) {
					helps("explain", x.ToAllow.Line)
				}
			}
			if len(lines) > 1 || name == "a list" && tc.want != some && got != tc.want {
				t.Errorf("%s, %s: %+v, want %q", name, tc.what, lines, tc.want)
			}
			if name == "with a route" && tc.want == some && got != "" && e.Name != "proxy.corp.internal" || name == "by a proxy" && e.Port == 3128 && got != "" {
				t.Errorf("%s, %s: %q", name, tc.what, got)
			}
		}
	}
}
