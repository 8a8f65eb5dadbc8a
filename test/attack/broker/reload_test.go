package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestBrokerReload: a route that goes is not served any more, and one that comes is, by the same broker.
func TestBrokerReload(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{Files: []lab.File{{Path: "/run/secrets/second", Data: []byte("sk-of-the-second-route"), Mode: 0o400}}})
	b.Lab.DNS.SetAddrs("second.test", "45.30.50.2")
	before := b.Process()
	const second = "broker:\n  second: {to: \"https://second.test/\", credential: file:/run/secrets/second, inject: {header: X-Api-Key}, allow: [GET /v1/**], env: {SECOND_URL: \"{base}\", SECOND_KEY: \"{token}\"}}\n"
	if r := b.ReloadWith(second); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	old := b.Base
	if !rig.Eventually(lab.Patience, func() bool { return !b.Prompt(b.Ask()...).OK }) {
		t.Error("the route that is gone is still served")
	}
	asked := len(b.Lab.Web.Requests("api.anthropic.com"))
	url := strings.TrimSuffix(old, "anthropic") + "second/v1/things"
	get := func(path string) lab.Poke {
		return b.Poke(append(append([]string{"http", "-timeout", "30s"}, b.Ask()...), url+path)...)
	}
	if !rig.Eventually(lab.Patience, func() bool { return get("").OK }) {
		t.Errorf("the route that came is not served: %s", get(""))
	}
	if p := get("/..%2fother"); p.OK {
		t.Errorf("a path that is not listed: %s", p)
	}
	for _, r := range b.Lab.Web.Requests("second.test") {
		if r.Header.Get("X-Api-Key") != "sk-of-the-second-route" {
			t.Errorf("the second server was asked by %v", r.Header)
		}
	}
	if n := len(b.Lab.Web.Requests("api.anthropic.com")); n != asked {
		t.Errorf("the first server was asked %d times more", n-asked)
	}
	if b.Mode == "" {
		if v := b.Variable("SECOND_URL"); v != strings.TrimSuffix(url, "/v1/things") {
			t.Errorf("exec has SECOND_URL=%s", v)
		}
	}
	if now := b.Process(); now.Host != before.Host {
		t.Error("it is another broker")
	}
	if r := b.ReloadWith("broker: {second: {to: \"https://second.test/\", credential: file:/run/secrets/none, inject: {header: X-Api-Key}, allow: [GET /v1/**]}}\n"); r.Code != 78 || !strings.Contains(r.Stderr, "there is no credential at file:/run/secrets/none") {
		t.Errorf("a route without its credential: %s", r)
	}
	if p := get(""); !p.OK {
		t.Errorf("after a refused reload: %s", p)
	}
}

// TestBrokerAbsent: an optional route without a credential leaves all as it would be without it, and nothing is
// started for it. It needs a new start to come.
func TestBrokerAbsent(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("api.anthropic.com", "45.30.50.1")
	w := rig.ConfineIn(t, l, "api.anthropic.com unbrokered\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/run/secrets", Dir: true, Mode: 0o755},
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker:\n  anthropic: {optional: true}\n")}}})
	b := &rig.Brokered{World: w}
	if all := b.Brokers(); len(all) != 0 {
		t.Errorf("there are brokers: %v", all)
	}
	w.Works("http", "https://api.anthropic.com/v1/models")
	says := func(want string) {
		t.Helper()
		if r := w.Root("agent-init", "status"); !strings.Contains(r.Stdout, want) {
			t.Errorf("the status does not say %q: %s", want, r)
		}
	}
	says("keys       anthropic: the agent reaches api.anthropic.com by name and holds what it logs in with (there is no credential at file:/run/secrets/anthropic, env:ANTHROPIC_API_KEY")
	rig.Must(t, w.Box.WriteFile("/run/secrets/anthropic", []byte(rig.BrokerKey), 0o400))
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Errorf("reload: %s", r)
	}
	says("(there was no route when agent-init was started)")
	w.Works("http", "https://api.anthropic.com/v1/models")
	if s, _ := w.Status(); strings.Contains(fmt.Sprint(s), rig.BrokerKey) {
		t.Error("the status has the key")
	}
}
