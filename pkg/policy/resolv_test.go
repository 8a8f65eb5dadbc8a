package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func searching(t *testing.T, ndots int, list string, ceiling ...File) *Policy {
	t.Helper()
	p, err := Parse(&Bundle{Files: []File{{Name: "allowlist.txt", Data: []byte(list)}}, Hosts: []byte("10.9.9.9 hosted\n"), Ceiling: ceiling,
		Resolv: Resolv{Search: []string{"ns.svc.cluster.local", "svc.cluster.local", "corp.com"}, Ndots: ndots}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAsked: which names servers are asked for.
func TestAsked(t *testing.T) {
	for _, tc := range []struct {
		ndots      int
		name, want string
	}{
		{5, "db", "db.ns.svc.cluster.local db.svc.cluster.local db.corp.com db"},
		{5, "db.ns", "db.ns.ns.svc.cluster.local db.ns.svc.cluster.local db.ns.corp.com db.ns"},
		{5, "db.ns.svc.cluster.local", "db.ns.svc.cluster.local"}, // a full form
		{5, "api.github.com", "api.github.com"},                   // of the Internet
		{5, "web.app", "web.app"},
		{5, "x.github.io", "x.github.io"},
		{1, "db", "db.ns.svc.cluster.local db.svc.cluster.local db.corp.com db"},
		{1, "db.ns", "db.ns"},
		{0, "db", "db"}, // Docker's networks
		{5, strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + "." + strings.Repeat("c", 60) + "." + strings.Repeat("d", 60), ""},
	} {
		got := strings.Join(searching(t, tc.ndots, "x.example").Asked(tc.name), " ")
		if tc.want == "" { // no name is longer than DNS has them
			tc.want = tc.name + ".corp.com " + tc.name
		}
		if got != tc.want {
			t.Errorf("ndots:%d %s: %s, want %s", tc.ndots, tc.name, got, tc.want)
		}
	}
	const denied = "db.ns:5432\n!db.ns.svc.cluster.local\n"
	if got := searching(t, 5, denied).Asked("db.ns"); slices.Contains(got, "db.ns.svc.cluster.local") || len(got) != 3 {
		t.Errorf("a denied form is asked for: %v", got)
	}
}

// TestForms: an entry with a short name is about that name as it is found, and not about each name that could be found; one
// with a full name may be called by the short one; and what denies one form denies all. Whatever asks the policy is told
// the same.
func TestForms(t *testing.T) {
	const list = "db:5432\nfull.ns.svc.cluster.local:8080 private\nboth:5432\nboth.ns.svc.cluster.local:80 private\n*.svc.cluster.local:9090 private\nhosted:80\n"
	full := ".ns.svc.cluster.local"
	for _, tc := range []struct {
		more, name string
		port       uint16
		allowed    bool
		is         string // the name of it
	}{
		{"", "db", 5432, true, "db"},
		{"", "db.corp.com", 5432, false, "db.corp.com"},
		{"", "db" + full, 5432, false, "db" + full}, // the guard answers for db
		{"", "db" + full, 9090, true, "db" + full},  // by the wildcard
		{"", "full", 8080, true, "full" + full},
		{"", "FULL.", 8080, true, "full" + full},
		{"", "full" + full, 8080, true, "full" + full},
		{"", "full", 443, false, "full" + full},
		{"", "full.corp.com", 8080, false, "full.corp.com"},
		{"", "both", 5432, true, "both"},
		{"", "both" + full, 80, true, "both" + full},
		{"", "any", 9090, true, "any" + full},
		{"", "api.github.com", 9090, false, "api.github.com"}, // of the Internet
		{"", "hosted", 80, true, "hosted"},
		{"!db", "db", 5432, false, "db"},
		{"!db", "db" + full, 9090, false, "db" + full},
		{"!db:9090", "db" + full, 9090, false, "db" + full},
		{"!db:9090", "db", 5432, true, "db"},
		{"!db" + full, "db", 5432, false, "db"},
		{"!db" + full + ":5432", "db", 5432, false, "db"},
		{"!*.corp.com", "db", 5432, false, "db"},
		{"!full", "full", 8080, false, "full"},
		{"!full", "full" + full, 8080, false, "full" + full},
		{"!full" + full, "full", 8080, false, "full"},
	} {
		p := searching(t, 5, list+tc.more)
		port, a := tcp(tc.port), netip.MustParseAddr("10.1.2.3")
		d, m := p.Decide(tc.name, port), p.Lookup(tc.name)
		said := fmt.Sprint(d.Allowed, slices.Contains(p.Ports(tc.name), port), slices.Contains(p.Admit(tc.name, a), port))
		if tc.is == "hosted" {
			said = fmt.Sprint(d.Allowed, slices.Contains(p.Ports(tc.name), port), slices.Contains(p.Admit(tc.name, netip.MustParseAddr("10.9.9.9")), port))
		}
		if want := fmt.Sprint(tc.allowed, tc.allowed, tc.allowed); said != want {
			t.Errorf("%q %s: %s, want %s: %+v", tc.more, tc.name, said, want, d)
		}
		if m.Name != tc.is && (tc.allowed || !strings.HasPrefix(tc.name, "full")) {
			t.Errorf("%q %s: it is %s, want %s", tc.more, tc.name, m.Name, tc.is)
		}
		if !tc.allowed && d.Rule != nil && p.LineFor(tc.name, a, port) != "" {
			t.Errorf("%q %s: a line is proposed for what a rule denies", tc.more, tc.name)
		}
		q, err := Rebuild(entriesOf(p.Written()), []byte("10.9.9.9 hosted\n"), p.Resolv, nil, p.Settings.UpstreamProxy, p.Below())
		if err != nil || fmt.Sprint(q.Decide(tc.name, port).Allowed, q.Lookup(tc.name).Name) != fmt.Sprint(d.Allowed, m.Name) {
			t.Errorf("%q %s: what is published decides otherwise: %v", tc.more, tc.name, err)
		}
	}
	if got := searching(t, 5, list).Meant("both" + full); !slices.Equal(got, []string{"both"}) {
		t.Errorf("both is meant by %v", got)
	}
}

// TestFormsBelowCeiling: a ceiling that denies a name denies its forms, and one that has a list has no other form in it.
func TestFormsBelowCeiling(t *testing.T) {
	for ceiling, want := range map[string]bool{
		"db\n": true, "other\n": false, "db.corp.com\n": false, "db\n!db.ns.svc.cluster.local\n": false, "db\n!*.corp.com\n": false, "db\n!db\n": false,
	} {
		p := searching(t, 5, "db\n", File{Name: "c.txt", Data: []byte(ceiling)})
		if got := p.Decide("db", HTTPS).Allowed; got != want {
			t.Errorf("%q: %v", ceiling, got)
		}
	}
}

// TestFormsOfRoutes: the agent does not reach a route's host by another form of its name.
func TestFormsOfRoutes(t *testing.T) {
	for host, entry := range map[string]string{"llm": "llm.ns.svc.cluster.local:8000 private", "llm.ns.svc.cluster.local": "llm:8000"} {
		_, err := Parse(&Bundle{Files: []File{{Name: "allowlist.txt", Data: []byte(entry)},
			{Name: "policy.yaml", Data: []byte("broker: {mine: {to: 'http://" + host + ":8000', private: true, credential: none, allow: [GET /**]}}\n")}},
			Resolv: Resolv{Search: []string{"ns.svc.cluster.local"}, Ndots: 5}}, nil)
		if err == nil || !strings.Contains(err.Error(), "reached through the broker alone") {
			t.Errorf("%s beside %s: %v", entry, host, err)
		}
	}
}

// TestFormsInspected: a name that is inspected is not reached by another form of it without a look at requests.
func TestFormsInspected(t *testing.T) {
	for list, ok := range map[string]bool{
		"web:80 GET /**\nweb.ns.svc.cluster.local private\n":               false,
		"web.ns.svc.cluster.local:80 GET /** private\nweb\n":               false,
		"web:80 GET /**\n*.svc.cluster.local private\n":                    false,
		"web.ns.svc.cluster.local:80 GET /** private\nweb:8080\n":          true,
		"web:80 GET /**\nweb.ns.svc.cluster.local:80 GET /** private\n":    true,
		"web.app:80 GET /**\nweb.app.svc.cluster.local:80 private\n":       true, // another server
		"web.app.svc.cluster.local:80 GET /** private\nweb.app\n":          true, // likewise
		"web:80 GET /**\nother.svc.cluster.local private\n!web.corp.com\n": true,
	} {
		_, err := Parse(&Bundle{Files: []File{{Name: "allowlist.txt", Data: []byte(list)}},
			Resolv: Resolv{Search: []string{"ns.svc.cluster.local", "svc.cluster.local", "corp.com"}, Ndots: 5}}, nil)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "without a look at its requests") {
			t.Errorf("%q: %v", list, err)
		}
	}
	p := searching(t, 5, "*.svc.cluster.local:80 GET /** private\n!web\n")
	for _, i := range p.Settings.Inspected {
		if i.Name == "web.ns.svc.cluster.local" && len(i.Deny) == 1 {
			return
		}
	}
	t.Errorf("the broker does not hear that web is denied: %+v", p.Settings.Inspected)
}
