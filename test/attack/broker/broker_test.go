package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// broker confines a box whose policy has the route anthropic, with its credential in a file, and more of a policy.
func broker(t *testing.T, more string, opts lab.BoxOptions) *rig.Brokered {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := &rig.Brokered{Model: &fakellm.Model{Key: rig.BrokerKey}}
	l.DNS.SetAddrs("api.anthropic.com", "45.30.50.1", "2a0f:30::50")
	l.Web.Handle("api.anthropic.com", b.Model)
	opts.Files = append(opts.Files,
		lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker:\n  anthropic:\n    credential: [file:/run/secrets/anthropic, env:ANTHROPIC_API_KEY]\n" + more)},
		lab.File{Path: rig.Bundle, Data: l.CA.PEM})
	if opts.Env == nil {
		opts.Files = append(opts.Files, lab.File{Path: "/run/secrets/anthropic", Data: []byte(rig.BrokerKey + "\n"), Mode: 0o400})
	}
	b.World = rig.ConfineIn(t, l, "ok.test\n", opts)
	b.Base, b.Token = b.Variable("ANTHROPIC_BASE_URL"), b.Variable("ANTHROPIC_AUTH_TOKEN")
	if !strings.HasPrefix(b.Base, "http://127.0.0.1:") || len(b.Token) < 40 || b.Token == rig.BrokerKey {
		t.Fatalf("the agent asks %q by the token %q", b.Base, b.Token)
	}
	return b
}

// TestBroker: the agent asks the model over the broker, with a token. The model gets the key, once for each request,
// and nothing else of the agent's; the agent has the key nowhere.
func TestBroker(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	if p := b.Prompt(b.Ask()...); !p.OK || !strings.Contains(fmt.Sprint(p.Detail["body"]), fakellm.Text) {
		t.Fatalf("the model does not answer: %s\n%s", p, b.Agent.Stderr())
	}
	got := b.Lab.Web.Requests("api.anthropic.com")
	if len(got) != 1 || got[0].Header.Get("X-Api-Key") != rig.BrokerKey || !got[0].TLS || got[0].SNI != "api.anthropic.com" {
		t.Errorf("the model was asked %+v", got)
	}
	if s := fmt.Sprint(got); strings.Contains(s, b.Token) {
		t.Error("the token reached the model")
	}
	for what, flags := range map[string][]string{
		"no token": nil, "another": {"-header", "authorization: Bearer " + strings.Repeat("x", len(b.Token))}, "the key itself": {"-header", "x-api-key: " + rig.BrokerKey},
	} {
		if p := b.Prompt(flags...); p.OK {
			t.Errorf("%s: %s", what, p)
		}
	}
	if n := len(b.Lab.Web.Requests("api.anthropic.com")); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	if r := b.Root("cat", "/run/agent-init/selftest.json"); !strings.Contains(r.Stdout, `"api.anthropic.com"`) {
		t.Errorf("the self-test does not try the model's name: %s", r)
	}
	b.Blocked("http", "-ca", rig.Bundle, "https://api.anthropic.com/v1/models") // by name it is not the agent's to reach
	keyless(b)
	e := b.Audited("the request", func(e rig.Event) bool { return e.Kind == "broker" && e.Verdict == "allow" })
	if e.Name != "api.anthropic.com" || e.Out == 0 || e.In == 0 {
		t.Errorf("the log has %+v", e)
	}
	b.Audited("the refusals", func(e rig.Event) bool { return e.Kind == "broker" && e.Verdict == "deny" })
}

// TestBrokerVariable: a key that comes in a variable is not handed on to anybody.
func TestBrokerVariable(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{Env: []string{"ANTHROPIC_API_KEY=" + rig.BrokerKey}})
	if p := b.Prompt(b.Ask()...); !p.OK {
		t.Errorf("the model does not answer: %s", p)
	}
	if v := b.Variable("ANTHROPIC_API_KEY"); v != "" {
		t.Errorf("the agent has ANTHROPIC_API_KEY=%s", v)
	}
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.Agent.Pid())); err != nil || strings.Contains(string(env), rig.BrokerKey[8:]) {
		t.Errorf("PID 1 still has it: %q, %v", env, err)
	}
	keyless(b)
}

// TestBrokerVariableUp: with up, others start the agent and give it the container's variables. A key there is refused,
// and nothing leaves; one in a file is taken.
func TestBrokerVariableUp(t *testing.T) {
	const policy = "broker: {anthropic: {credential: [file:/etc/agent-init/anthropic.key, env:ANTHROPIC_API_KEY]}}\n"
	w := rig.Start(t, "ok.test\n", lab.BoxOptions{Env: []string{"ANTHROPIC_API_KEY=" + rig.BrokerKey},
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)}}}, "sleep", "infinity")
	r := w.Root("agent-init", "up")
	rig.Refused(t, r, 78, "ANTHROPIC_API_KEY is one of the container's", "use a file")
	if strings.Contains(r.Stdout+r.Stderr, rig.BrokerKey[8:]) {
		t.Errorf("the refusal has the key: %s", r)
	}
	probe, err := lab.ParsePoke(w.Box.Exec(lab.Cmd{Args: []string{"/usr/local/bin/poke", "http", "-insecure", "https://ok.test/"}, UID: lab.AgentUID}).Stdout)
	if err != nil || probe.OK {
		t.Errorf("after the refusal: %s, %v", probe, err)
	}
	if err := w.Box.WriteFile("/etc/agent-init/anthropic.key", []byte(rig.BrokerKey+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	if r := w.Root("agent-init", "up"); r.Code != 0 {
		t.Errorf("with the key in a file: %s", r)
	}
}

// keyless fails the test if the agent can read the key anywhere. The pattern does not match itself, in an argument.
func keyless(b *rig.Brokered) {
	b.Helper()
	const scan = `K='canar[y]-0123456789'
found=$({ cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/maps | grep -a -o -e "$K"
grep -r -a -l -e "$K" /run /var/log /etc /tmp /dev/shm /home /root /workspace
for f in /proc/[0-9]*/fd/*; do [ -f "$f" ] && timeout 1 grep -a -l -e "$K" "$f"; done; } 2>/dev/null)
[ -z "$found" ] || echo FOUND $found
env; agent-init status; agent-init status --json; agent-init log; agent-init explain api.anthropic.com; agent-init doctor; true`
	r := b.Launch("sh", "-c", scan).Wait(0)
	for what, out := range map[string]string{"the agent": r.Stdout + r.Stderr, "agent-init": b.Agent.Stdout() + b.Agent.Stderr()} {
		if strings.Contains(out, "FOUND") || strings.Contains(out, rig.BrokerKey[8:]) {
			b.Errorf("%s shows the key: %s", what, out)
		}
	}
	if !strings.Contains(r.Stdout, "HOSTNAME=") {
		b.Errorf("the search did not go as meant: %s", r)
	}
	for _, file := range []string{"agent.json", "status.json"} { // also what root alone reads
		if data, err := b.Box.ReadFile("/run/agent-init/" + file); err != nil || strings.Contains(string(data), rig.BrokerKey[8:]) {
			b.Errorf("%s has the key, or %v", file, err)
		}
	}
}
