package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestBrokerExplains: the agent learns where it has to ask, and nobody opens the same host beside the broker.
func TestBrokerExplains(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{NoNewPrivs: true})
	b.Says([]string{"explain", "api.anthropic.com"}, "api.anthropic.com 443/tcp: reached through the broker alone\n", "reached through the broker: "+b.Base,
		"ANTHROPIC_BASE_URL", "(policy.yaml:2)", "POST /v1/messages, ", "HEAD /api/hello is refused, and does no harm")
	b.Says([]string{"explain", b.Base + "/v1/files"}, "/v1/files is refused: no method of it is the route's")
	b.Says([]string{"explain", "https://api.anthropic.com/v1/messages"}, "POST /v1/messages passes")
	const hint = "reached through the broker alone: agent-init explain api.anthropic.com"
	if p := b.Poke("dns", lab.Upstream4.String()+":53", "api.anthropic.com", "A"); !strings.Contains(fmt.Sprint(p.Detail), hint) {
		t.Errorf("DNS says %s", p)
	}
	if readme, err := b.Box.ReadFile("/run/agent-init/README.md"); err != nil || !strings.Contains(string(readme), "- `anthropic`, for https://api.anthropic.com/: ") {
		t.Errorf("README.md: %v\n%s", err, readme)
	}
	const reached = "https://api.anthropic.com/ is reached through the broker alone, by the route anthropic (policy.yaml:2)"
	b.Refuses(64, []string{"allow", "api.anthropic.com"}, reached, "agent-init explain anthropic")
	b.Refuses(64, []string{"allow", "*.anthropic.com"}, reached)
	if r := b.AgentRuns("request", "api.anthropic.com", "--reason", "x"); r.Code == 0 || !strings.Contains(r.Stderr, reached) {
		t.Errorf("a request: %s", r)
	}
	if r := b.Root("agent-init", "deny", "api.anthropic.com"); r.Code != 0 || !strings.Contains(r.Stdout+r.Stderr, "still, "+reached) {
		t.Errorf("a denial: %s", r)
	}
	// A line beside the route is an error, and one that steps back for it is not.
	if r := b.SetPolicy("*.anthropic.com\n"); r.Code != 78 || !strings.Contains(r.Stderr, "allowlist.txt:1:1: api.anthropic.com is reached through the broker alone, by the route anthropic (policy.yaml:2)") {
		t.Errorf("a wildcard: %s", r)
	}
	if r := b.SetPolicy("ok.test\napi.anthropic.com unbrokered\n"); r.Code != 0 {
		t.Error(r)
	}
	b.Blocked("resolve", "api.anthropic.com")
	b.Works("http", "https://ok.test/")
	if p := b.Prompt(b.Ask()...); !p.OK {
		t.Errorf("the route has ended: %s", p)
	}
	if ills, _ := b.Doctor(); ills["keys"] != "" || ills["broker"] != "" {
		t.Errorf("doctor: %v", ills)
	}
}

// TestRouteBesideAGrant: a route that comes to where a person has let the agent go is not taken before that has ended.
func TestRouteBesideAGrant(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	b.Did("allow", "shared.test")
	const route = "broker:\n  anthropic: {credential: file:/run/secrets/anthropic}\n  mine: {to: 'https://shared.test/', credential: none, allow: [GET /**]}\n"
	rig.Must(t, b.Box.WriteFile("/etc/agent-init/policy.yaml", []byte(route), 0o644))
	b.Refuses(78, []string{"reload"}, "grant-1:1:1: shared.test is reached through the broker alone, by the route mine (policy.yaml:3)", "agent-init grants --end")
	b.Works("http", "https://shared.test/")
	b.Did("grants", "--end", "1")
	b.Did("reload")
	b.Blocked("resolve", "shared.test")
	b.Says([]string{"explain", "mine"}, "shared.test 443/tcp: reached through the broker alone\n", "GET /**")
}

// TestBrokerRefusesStart: nothing runs by a policy with a wrong route, and the message says where it is and what to do.
func TestBrokerRefusesStart(t *testing.T) {
	for name, c := range map[string]struct{ policy, list, says string }{
		"an unknown route": {"broker:\n  antropic: {}\n", "ok.test\n", "policy.yaml:2:3: no route of this name is built in"},
		"an unknown word":  {"broker:\n  anthropic:\n    key: x\n", "ok.test\n", `policy.yaml:3:5: unknown key: "key"`},
		"a missing key":    {"broker:\n  anthropic:\n    credential: file:/run/secrets/none\n", "ok.test\n", "policy.yaml:3:5: "},
		"a key that everybody reads": {
			"broker:\n  anthropic:\n    credential: file:/run/secrets/open\n", "ok.test\n", "policy.yaml:3:5: ",
		},
		"a name that is also on the list": {
			"broker:\n  anthropic:\n    credential: file:/run/secrets/anthropic\n", "ok.test\n*.anthropic.com\n", "allowlist.txt:2:1: api.anthropic.com is reached through the broker alone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rig.Start(t, c.list, lab.BoxOptions{Files: []lab.File{
				{Path: "/etc/agent-init/policy.yaml", Data: []byte(c.policy)},
				{Path: "/run/secrets/anthropic", Data: []byte(rig.BrokerKey), Mode: 0o400},
				{Path: "/run/secrets/open", Data: []byte(rig.BrokerKey), Mode: 0o444},
			}}, "agent-init", "run", "--", "echo", "the agent runs")
			r := w.Agent.Wait(0)
			if r.Code != 78 || !strings.Contains(r.Stderr, c.says) || !strings.Contains(r.Stderr, "remedy:") || strings.Contains(r.Stdout, "runs") {
				t.Error(r)
			}
			if strings.Contains(r.Stdout+r.Stderr, rig.BrokerKey[8:]) {
				t.Error("the key is in what was said")
			}
		})
	}
}
