package inspect

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestInspectedCredential: who shows the token at an inspected name gets the route's credential in its place, on what a
// rule allows. Nobody else's credential passes there, and the agent has the key nowhere.
func TestInspectedCredential(t *testing.T) {
	files := []lab.File{
		{Path: "/run/secrets/corp", Data: []byte(rig.BrokerKey + "\n"), Mode: 0o400},
		{Path: "/etc/agent-init/policy.yaml", Data: []byte(`broker:
  corp:
    inspect: api.test
    credential: file:/run/secrets/corp
    inject: {header: Authorization, value: "Bearer {}"}
    env: {CORP_KEY: "{token}"}
`)},
	}
	b := &rig.Brokered{World: rig.LookedInto(t, "ok.test\napi.test GET /open/**\n", lab.BoxOptions{Files: files})}
	token := b.Variable("CORP_KEY")
	if len(token) < 40 || strings.Contains(token, rig.BrokerKey) {
		t.Fatalf("the agent has %q", token)
	}
	for _, c := range []struct {
		path, header, status, arrives string
	}{
		{"/open/with", "Authorization: Bearer " + token, "200", "Bearer " + rig.BrokerKey},
		{"/open/without", "X-Other: 1", "200", ""},
		{"/open/another", "Authorization: Bearer sk-of-somebody-else", "403", ""},
		{"/open/elsewhere", "X-Api-Key: sk-of-somebody-else", "403", ""},
		{"/closed", "Authorization: Bearer " + token, "403", ""},
	} {
		before := len(b.Lab.Web.Requests("api.test"))
		if p := b.Get(c.path, "-header", c.header); rig.StatusOf(p) != c.status {
			t.Errorf("%s: %s\n%s", c.path, p, b.Agent.Stderr())
		}
		got := b.Lab.Web.Requests("api.test")[before:]
		if c.status != "200" && len(got) != 0 || c.status == "200" && (len(got) != 1 || got[0].Header.Get("Authorization") != c.arrives) {
			t.Errorf("%s arrived as %+v", c.path, got)
		}
	}
	e := b.Audited("the request", func(e rig.Event) bool { return e.Kind == "broker" && e.Verdict == "allow" && e.Name == "api.test" })
	if e.In == 0 || strings.Contains(b.Agent.Stderr(), rig.BrokerKey) {
		t.Errorf("the log has %+v", e)
	}
	if r := b.Script("env; cat /run/agent-init/* 2>/dev/null"); strings.Contains(r.Stdout, rig.BrokerKey) {
		t.Error("the agent reads the key")
	}
}
