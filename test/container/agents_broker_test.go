package container

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// canary is a key that nobody has but the model and the broker.
const canary = "sk-canary-7d1f0c83e6b5492a-ORIGINAL"

// testBrokered has an agent's image answer a prompt over the broker, with a tool, once without a terminal and once on one. The
// model demands the key, which the agent hasn't: it is looked for wherever the agent can look.
func testBrokered(t *testing.T, e *engine, n *internet, a agentSpec, image string, h *heard) {
	model := &fakellm.Model{Key: canary, Tools: true, Hints: a.mcp != "", Delay: 20 * time.Millisecond}
	h.now(model)
	t.Cleanup(func() { h.now(fakellm.New()) })
	n.forget()

	secret := filepath.Join(t.TempDir(), a.broker.route)
	if err := os.WriteFile(secret, []byte(canary+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	t.Run("prompt", func(t *testing.T) {
		model.Forget()
		container := e.name(t)
		command := args(a.command(), a.prompt, a.broker.flags)
		out := e.docker(args([]string{"run", "--name", container}, a.routed(t, n), []string{"-v", secret + ":/run/secrets/" + a.broker.route + ":ro"},
			[]string{image, "bash", "/test/broker.sh", backwards(canary)}, command)...)
		if out.code != 0 || !strings.Contains(out.stdout, fakellm.Text) {
			t.Errorf("%q: exit %d, want %q\n%s%s", command, out.code, fakellm.Text, out.stdout, out.stderr)
		}
		a.mustAsk(t, model.Calls())
		mustHideKey(t, out.stdout)
		if strings.Contains(out.stdout+out.stderr, canary) {
			t.Errorf("the key is in what was said:\n%s%s", out.stdout, out.stderr)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		model.Forget()
		model.Hints = model.Hints && a.name != "claude" // which there does not always have bash read BASH_ENV
		screens := a.screens()
		c := screens[len(screens)-1]
		var shipped []string
		if err := json.Unmarshal([]byte(e.must(t, "inspect", "--format", "{{json .Config.Cmd}}", image)), &shipped); err != nil {
			t.Fatal(err)
		}
		s, container := newScreens(t), e.name(t)
		p := s.docker(120, 40, args([]string{"run", "-it", "--name", container, "-e", "TERM=xterm-256color"}, a.routed(t, n), mounts(t, c.files),
			[]string{"-e", a.broker.variable + "=" + canary, image}, shipped, c.args, a.broker.flags)...)
		for _, ask := range a.broker.asks(c.asks) {
			s.answers(p, ask[0], ask[1])
		}
		s.shows(p, c.ready)
		s.enters(p, question, fakellm.Text)
		a.mustAsk(t, model.Calls())
		mustHideKey(t, e.docker("exec", container, "/usr/local/bin/agent-init", "exec", "--", "bash", "/test/broker.sh", backwards(canary), "true").stdout)
		status := e.docker("exec", container, "/usr/local/bin/agent-init", "status")
		if !strings.Contains(status.stdout, "env:"+a.broker.variable) || strings.Contains(status.stdout, canary) {
			t.Errorf("status does not say where the key is from, or says too much:\n%s%s", status.stdout, status.stderr)
		}
		s.enters(p, c.end, "[exit 0]")
	})
	if a.name == "claude" {
		t.Run("stream", func(t *testing.T) { testStream(t, e, n, a, image, h, secret) })
	}
	_, queries := n.seen()
	if slices.Contains(queries, "evil.example.net.") {
		t.Errorf("a question for a name that is not allowed arrived: %q", queries)
	}
}

// routed are the arguments of a container whose agent is asked over the broker: the authority is in the image's bundle, which
// is the broker's, and the agent knows of none.
func (a agentSpec) routed(t *testing.T, n *internet) []string {
	t.Helper()
	script, err := filepath.Abs("testdata/broker.sh")
	if err != nil {
		t.Fatal(err)
	}
	out := args(privileges(), []string{"-v", script + ":/test/broker.sh:ro", "-v", n.authority + ":/etc/ssl/certs/ca-certificates.crt:ro"})
	for _, kv := range a.broker.env {
		out = append(out, "-e", kv)
	}
	return out
}

// backwards is what broker.sh is told of the key.
func backwards(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// asks are the questions of the first start over the broker: none is about a key.
func (b brokered) asks(all [][2]string) (out [][2]string) {
	for _, ask := range all {
		if !slices.Contains(b.unasked, ask[0]) {
			out = append(out, ask)
		}
	}
	return out
}

// mustAsk checks what the model was asked: always with the key, nothing else than is known, and no more often than one prompt
// with one use of a tool takes.
func (a agentSpec) mustAsk(t *testing.T, calls map[string]int) {
	t.Helper()
	const most = 8
	total := 0
	for call, n := range calls {
		total += n
		if !slices.ContainsFunc(a.broker.calls, func(known string) bool { return strings.HasPrefix(call, known) }) {
			t.Errorf("%d× %s", n, call)
		}
	}
	if total < 2 || total > most {
		t.Errorf("the model was asked %d times, want 2 to %d: %v", total, most, calls)
	}
	t.Logf("asked: %v", slices.Sorted(maps.Keys(calls)))
}

// mustHideKey checks what broker.sh found: the key nowhere, and the token, by which the search is known to find something.
func mustHideKey(t *testing.T, output string) {
	t.Helper()
	found := map[string]int{}
	for line := range strings.Lines(output) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "found" {
			found[f[1]]++
		}
	}
	if found["key"] != 0 || found["token"] == 0 {
		t.Errorf("the key was found %d times, the token %d times:\n%s", found["key"], found["token"], output)
	}
}
