package attack

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// brokerKey is the credential of the lab's route. No test but the API may see it.
const brokerKey = "sk-ant-api03-canary-0123456789abcdefghijklmnopqrstuvwxyz"

// brokered is a world with a route to the lab's model, and what the agent asks it by.
type brokered struct {
	*world
	model       *fakellm.Model
	base, token string
}

// broker confines a box whose policy has the route anthropic, with its credential in a file, and more of a policy.
func broker(t *testing.T, more string, opts lab.BoxOptions) *brokered {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := &brokered{model: &fakellm.Model{Key: brokerKey}}
	l.DNS.SetAddrs("api.anthropic.com", "45.30.50.1", "2a0f:30::50")
	l.Web.Handle("api.anthropic.com", b.model)
	opts.Files = append(opts.Files,
		lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker:\n  anthropic:\n    credential: [file:/run/secrets/anthropic, env:ANTHROPIC_API_KEY]\n" + more)},
		lab.File{Path: bundle, Data: l.CA.PEM})
	if opts.Env == nil {
		opts.Files = append(opts.Files, lab.File{Path: "/run/secrets/anthropic", Data: []byte(brokerKey + "\n"), Mode: 0o400})
	}
	b.world = confineIn(t, l, "ok.test\n", opts)
	b.base, b.token = b.variable("ANTHROPIC_BASE_URL"), b.variable("ANTHROPIC_AUTH_TOKEN")
	if !strings.HasPrefix(b.base, "http://127.0.0.1:") || len(b.token) < 40 || b.token == brokerKey {
		t.Fatalf("the agent asks %q by the token %q", b.base, b.token)
	}
	return b
}

// variable is one of the agent's.
func (b *brokered) variable(name string) string {
	b.Helper()
	show := `printf %s "$` + name + `"`
	r := b.launch("sh", "-c", show).Wait(0)
	if b.mode != "" { // somebody else starts the agent, and has it read a file
		r = b.box.Exec(lab.Cmd{Args: []string{"sh", "-c", ". /run/agent-init/broker.env; " + show}, UID: lab.AgentUID})
	}
	if r.Code != 0 {
		b.Fatalf("%s: %s", name, r)
	}
	return r.Stdout
}

const prompt = `{"model":"claude-sonnet-4-5","max_tokens":16,"messages":[{"role":"user","content":"hello"}]}`

// prompt asks the model, with flags more.
func (b *brokered) prompt(flags ...string) lab.Poke {
	b.Helper()
	args := append([]string{"http", "-timeout", "30s", "-method", "POST", "-body", prompt, "-header", "content-type: application/json", "-header", "anthropic-version: 2023-06-01"}, flags...)
	return b.poke(append(args, b.base+"/v1/messages")...)
}

func (b *brokered) ask() []string { return []string{"-header", "authorization: Bearer " + b.token} }

// TestBroker: the agent asks the model over the broker, with a token. The model gets the key, once for each request,
// and nothing else of the agent's; the agent has the key nowhere.
func TestBroker(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	if p := b.prompt(b.ask()...); !p.OK || !strings.Contains(fmt.Sprint(p.Detail["body"]), fakellm.Text) {
		t.Fatalf("the model does not answer: %s\n%s", p, b.agent.Stderr())
	}
	got := b.lab.Web.Requests("api.anthropic.com")
	if len(got) != 1 || got[0].Header.Get("X-Api-Key") != brokerKey || !got[0].TLS || got[0].SNI != "api.anthropic.com" {
		t.Errorf("the model was asked %+v", got)
	}
	if s := fmt.Sprint(got); strings.Contains(s, b.token) {
		t.Error("the token reached the model")
	}
	for what, flags := range map[string][]string{
		"no token": nil, "another": {"-header", "authorization: Bearer " + strings.Repeat("x", len(b.token))}, "the key itself": {"-header", "x-api-key: " + brokerKey},
	} {
		if p := b.prompt(flags...); p.OK {
			t.Errorf("%s: %s", what, p)
		}
	}
	if n := len(b.lab.Web.Requests("api.anthropic.com")); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	if r := b.root("cat", "/run/agent-init/selftest.json"); !strings.Contains(r.Stdout, `"api.anthropic.com"`) {
		t.Errorf("the self-test does not try the model's name: %s", r)
	}
	b.blocked("http", "-ca", bundle, "https://api.anthropic.com/v1/models") // by name it is not the agent's to reach
	b.keyless()
	e := b.audited("the request", func(e event) bool { return e.Kind == "broker" && e.Verdict == "allow" })
	if e.Name != "api.anthropic.com" || e.Out == 0 || e.In == 0 {
		t.Errorf("the log has %+v", e)
	}
	b.audited("the refusals", func(e event) bool { return e.Kind == "broker" && e.Verdict == "deny" })
}

// TestBrokerVariable: a key that comes in a variable is not handed on to anybody.
func TestBrokerVariable(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{Env: []string{"ANTHROPIC_API_KEY=" + brokerKey}})
	if p := b.prompt(b.ask()...); !p.OK {
		t.Errorf("the model does not answer: %s", p)
	}
	if v := b.variable("ANTHROPIC_API_KEY"); v != "" {
		t.Errorf("the agent has ANTHROPIC_API_KEY=%s", v)
	}
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.agent.Pid())); err != nil || strings.Contains(string(env), brokerKey[8:]) {
		t.Errorf("PID 1 still has it: %q, %v", env, err)
	}
	b.keyless()
}

// TestBrokerVariableUp: with up, others start the agent and give it the container's variables. A key there is refused,
// and nothing leaves; one in a file is taken.
func TestBrokerVariableUp(t *testing.T) {
	const policy = "broker: {anthropic: {credential: [file:/etc/agent-init/anthropic.key, env:ANTHROPIC_API_KEY]}}\n"
	w := start(t, "ok.test\n", lab.BoxOptions{Env: []string{"ANTHROPIC_API_KEY=" + brokerKey},
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)}}}, "sleep", "infinity")
	r := w.root("agent-init", "up")
	refused(t, r, 78, "ANTHROPIC_API_KEY is one of the container's", "use a file")
	if strings.Contains(r.Stdout+r.Stderr, brokerKey[8:]) {
		t.Errorf("the refusal has the key: %s", r)
	}
	probe, err := lab.ParsePoke(w.box.Exec(lab.Cmd{Args: []string{"/usr/local/bin/poke", "http", "-insecure", "https://ok.test/"}, UID: lab.AgentUID}).Stdout)
	if err != nil || probe.OK {
		t.Errorf("after the refusal: %s, %v", probe, err)
	}
	if err := w.box.WriteFile("/etc/agent-init/anthropic.key", []byte(brokerKey+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	if r := w.root("agent-init", "up"); r.Code != 0 {
		t.Errorf("with the key in a file: %s", r)
	}
}

// keyless fails the test if the agent can read the key anywhere. The pattern does not match itself, in an argument.
func (b *brokered) keyless() {
	b.Helper()
	const scan = `K='canar[y]-0123456789'
found=$({ cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/maps | grep -a -o -e "$K"
grep -r -a -l -e "$K" /run /var/log /etc /tmp /dev/shm /home /root /workspace
for f in /proc/[0-9]*/fd/*; do [ -f "$f" ] && timeout 1 grep -a -l -e "$K" "$f"; done; } 2>/dev/null)
[ -z "$found" ] || echo FOUND $found
env; agent-init status; agent-init status --json; agent-init log; agent-init explain api.anthropic.com; agent-init doctor; true`
	r := b.launch("sh", "-c", scan).Wait(0)
	for what, out := range map[string]string{"the agent": r.Stdout + r.Stderr, "agent-init": b.agent.Stdout() + b.agent.Stderr()} {
		if strings.Contains(out, "FOUND") || strings.Contains(out, brokerKey[8:]) {
			b.Errorf("%s shows the key: %s", what, out)
		}
	}
	if !strings.Contains(r.Stdout, "HOSTNAME=") {
		b.Errorf("the search did not go as meant: %s", r)
	}
	for _, file := range []string{"agent.json", "status.json"} { // also what root alone reads
		if data, err := b.box.ReadFile("/run/agent-init/" + file); err != nil || strings.Contains(string(data), brokerKey[8:]) {
			b.Errorf("%s has the key, or %v", file, err)
		}
	}
}

// brokers are the live brokers of the box, which should be one.
func (b *brokered) brokers() []inmate {
	return slices.DeleteFunc(inmates(b.T, b.agent), func(p inmate) bool { return !strings.HasSuffix(p.args, " broker") })
}

// process waits for the one broker that there should be.
func (b *brokered) process() inmate {
	b.Helper()
	var all []inmate
	if !eventually(20*time.Second, func() bool { all = b.brokers(); return len(all) == 1 }) {
		b.Fatalf("there are %d brokers: %v", len(all), all)
	}
	return all[0]
}
