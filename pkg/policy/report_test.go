package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

func effective(t testing.TB, p *Policy) string {
	t.Helper()
	var b strings.Builder
	if err := p.WriteEffective(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWriteEffective(t *testing.T) {
	p, err := Parse(&Bundle{Files: []File{
		{Name: "policy.yaml", Data: []byte("domains: [API.example.com., 'b.example:443 private']\ndeny: [c.example]\n")},
		{Name: "allowlist.d/x.txt", Data: []byte("[2001:db8::]/32:443\n!d.example:22\n*.e.example\n192.0.2.1 required\n@mistral\nf.example:80 connect upgrade\n")},
	}}, fsys("mistral.txt", "m.example  # why\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, settings, _ := strings.Cut(effective(t, p), "\n\n")
	want := `!c.example                                   # policy.yaml:2
!d.example:22                                # allowlist.d/x.txt:2
api.example.com                              # policy.yaml:1
b.example:443 private                        # policy.yaml:1
[2001:db8::]/32:443                          # allowlist.d/x.txt:1
*.e.example                                  # allowlist.d/x.txt:3
192.0.2.1 required                           # allowlist.d/x.txt:4
m.example                                    # allowlist.d/x.txt:5 @mistral
f.example:80 upgrade connect                 # allowlist.d/x.txt:6`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, line := range strings.Split(strings.TrimSpace(settings), "\n") {
		if !strings.HasPrefix(line, "#") {
			t.Errorf("a setting is no comment: %q", line)
		}
	}
	if again := parse(t, "again.txt", effective(t, p)); bare(again) != bare(p) {
		t.Errorf("reads as\n%s", effective(t, again))
	}
}

func TestReportJSON(t *testing.T) {
	p := parse(t, "a.txt", "!x.example:22\n10.0.0.0/8\na.example required upgrade connect\n*.github.io\n")
	got, err := json.Marshal(p.Report())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"rules":[` +
		`{"rule":"!x.example:22","source":"a.txt:1","deny":true,"target":"x.example","ports":["22/tcp"]},` +
		`{"rule":"10.0.0.0/8","source":"a.txt:2","target":"10.0.0.0/8","ports":["443/tcp","80/tcp"]},` +
		`{"rule":"a.example required upgrade connect","source":"a.txt:3","target":"a.example","ports":["443/tcp","80/tcp"],"required":true,"upgrade":true,"connect":true},` +
		`{"rule":"*.github.io","source":"a.txt:4","target":"*.github.io","ports":["443/tcp","80/tcp"]}],` +
		`"settings":{"inbound":[],"selftest":{"reach":[],"block":[]},"dns":{"upstream":[],"max_ttl":"5m0s","qps":200},` +
		`"limits":{"addrs_per_name":32,"leases":65536,"new_names_per_wildcard_per_minute":120},"log":{"stdout":false,"max_size":16777216,"files":3},"session":{"clipboard":true},"tls":{"ech":"pass"},"user_namespaces":true,"nice":19},` +
		`"warnings":["a.txt:4:1: anyone can have a name below github.io: list the names that the agent needs: \"*.github.io\""],` +
		`"counts":{"files":1,"rules":4,"names":1,"wildcards":1,"addresses":1,"denied":1,"required":1}}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// bare returns the rules of a policy, without where they come from.
func bare(p *Policy) string {
	var b strings.Builder
	for r := range p.Rules() {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}
