package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// aRun is a box in which there was something of everything that a report tells of.
func aRun(t *testing.T) *rig.Brokered {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := &rig.Brokered{Model: &fakellm.Model{Key: rig.BrokerKey}}
	l.DNS.SetAddrs("api.anthropic.com", "45.30.50.1", "2a0f:30::50")
	l.DNS.SetAddrs("api.test", "45.30.60.1", "2a0f:30::60")
	l.Web.Handle("api.anthropic.com", b.Model)
	const list = "ok.test\napi.test GET /open/**\n*.never.test\n!denied.test\n45.30.9.9:8443\n"
	b.World = rig.StartIn(t, l, list, lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker:\n  anthropic:\n    credential: file:/run/secrets/anthropic\n")},
		{Path: "/run/secrets/anthropic", Data: []byte(rig.BrokerKey + "\n"), Mode: 0o400},
		{Path: rig.Bundle, Data: l.CA.PEM},
	}}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	b.InSession()
	b.Base, b.Token = b.Variable("ANTHROPIC_BASE_URL"), b.Variable("ANTHROPIC_AUTH_TOKEN")
	return b
}

// reported is what report --json says, as far as it is looked at here.
type reported struct {
	Now      struct{ Live, OK bool }
	Totals   map[string]int
	Contacts []reportedContact
	Refusals []struct{ What, Method, Path, Line string }
	Grants   []struct{ Target string }
	Routes   []struct {
		Name     string
		Requests int
	}
	Policy struct {
		Entries []struct {
			Rule string
			Used int
		}
		Unused int
	}
	Hashes struct {
		Program struct{ SHA256 string }
		Files   []struct{ Path string }
	}
}

type reportedContact struct {
	Name string
	Ways []string
}

// TestReport: what the agent did is told by its report: of a container that runs, and of a copy of its log alone.
func TestReport(t *testing.T) {
	b := aRun(t)
	b.Works("http", "https://ok.test/")
	b.Works("http", "http://ok.test/")
	b.Blocked("resolve", "evil.test")
	b.Blocked("resolve", "denied.test")
	b.Blocked("http", "http://"+lab.Upstream4.String()+":8081/")
	for range 3 {
		b.Prompt(b.Ask()...)
	}
	b.Get("/open/x")
	b.Get("/closed/1")
	if r := b.AgentRuns("request", "registry.test", "--reason", "<script>alert(1)</script> to install"); r.Code != 0 {
		t.Fatal(r)
	}
	b.Did("allow", "--request", "1", "--for", "10m", "--reason", "one build")
	b.Did("allow", "evil.test")
	b.Did("allow", "mirror.test", "--save")
	b.Works("http", "https://evil.test/")
	b.Audited("the last of it", func(e rig.Event) bool { return e.Kind == "connect" && e.Name == "evil.test" })

	r := reportedBy(b, b.Did("report", "--json"))
	if !r.Now.Live || !r.Now.OK || len(r.Hashes.Program.SHA256) != 64 {
		t.Errorf("of a container that runs: %+v", r)
	}
	tells(b, r)
	if files := fmt.Sprint(r.Hashes.Files); !strings.Contains(files, "/etc/agent-init/policy.yaml") || !strings.Contains(files, "/var/lib/agent-init/allowlist.d/granted.txt") {
		t.Errorf("hashes are of %s", files)
	}
	if page := b.Did("report", "--html", "-"); !strings.Contains(page, "&lt;script&gt;alert(1)") || strings.Contains(page, "<script>alert") {
		t.Errorf("the page of a container that runs: %s", page)
	}
	// The agent reads the same.
	if r := reportedBy(b, b.Says([]string{"report", "--json"})); len(r.Contacts) < 4 {
		t.Errorf("as the agent: %+v", r)
	}
	// A link where the page is to go is the agent's choice of another file.
	b.Script("mkdir /tmp/mine && ln -s /etc/passwd /tmp/mine/report.html")
	b.Refuses(1, []string{"report", "--html", "/tmp/mine/report.html"}, "is a link")

	b.Did("report", "--html", "/root/report.html")
	if r := b.Root("sh", "-c", "mkdir /tmp/copied && cp /var/log/agent-init/* /run/agent-init/policy.jsonl /tmp/copied"); r.Code != 0 {
		t.Fatal(r)
	}
	r = reportedBy(b, b.Did("report", "--dir", "/tmp/copied", "--json"))
	if r.Now.Live || r.Hashes.Program.SHA256 != "" {
		t.Errorf("of a copy: %+v", r)
	}
	tells(b, r)
}

func reportedBy(b *rig.Brokered, data string) (r reported) {
	b.Helper()
	rig.Must(b.T, json.Unmarshal([]byte(data), &r))
	return r
}

// tells looks for what the agent did in aRun.
func tells(b *rig.Brokered, r reported) {
	b.Helper()
	for _, name := range []string{"ok.test", "evil.test", "api.test", "api.anthropic.com"} {
		if !slices.ContainsFunc(r.Contacts, func(c reportedContact) bool { return c.Name == name && len(c.Ways) > 0 }) {
			b.Errorf("%s is no contact: %+v", name, r.Contacts)
		}
	}
	lines := ""
	for _, f := range r.Refusals {
		lines += f.What + f.Path + ": " + f.Line + "\n"
	}
	for _, line := range []string{"192.0.2.53: 192.0.2.53:8081\n", "api.test/closed/1: api.test GET /closed/*\n", "denied.test: \n", "evil.test: "} {
		if !strings.Contains(lines, line) {
			b.Errorf("%q is not among the refusals:\n%s", line, lines)
		}
	}
	if len(r.Grants) != 3 || len(r.Routes) != 1 || r.Routes[0].Requests != 3 || r.Policy.Unused != 2 {
		b.Errorf("grants %+v, routes %+v, policy %+v", r.Grants, r.Routes, r.Policy)
	}
}
