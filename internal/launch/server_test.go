package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestServerOfAPerson: where a person's environment names a server, the agent's requests go there with the key that
// stands beside it, or the start is refused. No other key is mounted, and none goes to another server.
func TestServerOfAPerson(t *testing.T) {
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "anthropic openai gemini", "agent-claude:latest")
	dir, file := t.TempDir(), write(t, filepath.Join(t.TempDir(), "key"), otherKey+"\n")
	both := map[string]string{"ANTHROPIC_API_KEY": key, "OPENAI_API_KEY": otherKey}
	for name, c := range map[string]struct {
		env     map[string]string
		o       Options
		routes  []string // arguments of the script, by twos
		from    []string // the keys that are handed over
		refused string
		remedy  string
	}{
		"none":                {env: both, from: []string{"anthropic $ANTHROPIC_API_KEY", "openai $OPENAI_API_KEY"}},
		"its own":             {env: map[string]string{"ANTHROPIC_BASE_URL": "https://api.anthropic.com", "ANTHROPIC_API_KEY": key}, from: []string{"anthropic $ANTHROPIC_API_KEY"}},
		"its own, no key":     {env: map[string]string{"ANTHROPIC_BASE_URL": "https://api.anthropic.com/", "OPENAI_BASE_URL": "https://api.openai.com/v1/"}},
		"a gateway":           {env: map[string]string{"ANTHROPIC_BASE_URL": "https://gw.example:8443/llm", "ANTHROPIC_API_KEY": key}, routes: []string{"anthropic", `to: "https://gw.example:8443/llm/", private: true`}, from: []string{"anthropic $ANTHROPIC_API_KEY"}},
		"by a file":           {env: map[string]string{"ANTHROPIC_BASE_URL": "https://gw.example"}, o: Options{Secrets: []string{"anthropic=" + file}}, routes: []string{"anthropic", `to: "https://gw.example/", private: true`}, from: []string{"anthropic " + file}},
		"by --env":            {env: both, o: Options{Env: []string{"ANTHROPIC_BASE_URL=https://gw.example"}}, routes: []string{"anthropic", `to: "https://gw.example/", private: true`}, from: []string{"anthropic $ANTHROPIC_API_KEY", "openai $OPENAI_API_KEY"}},
		"a token":             {env: map[string]string{"ANTHROPIC_BASE_URL": "https://gw.example", "ANTHROPIC_AUTH_TOKEN": key, "ANTHROPIC_API_KEY": "x"}, routes: []string{"anthropic", `to: "https://gw.example/", private: true, inject: {header: Authorization, value: "Bearer {}"}`}, from: []string{"anthropic $ANTHROPIC_AUTH_TOKEN"}},
		"a token alone":       {env: map[string]string{"ANTHROPIC_AUTH_TOKEN": key}, routes: []string{"anthropic", `inject: {header: Authorization, value: "Bearer {}"}`}, from: []string{"anthropic $ANTHROPIC_AUTH_TOKEN"}},
		"without TLS":         {env: map[string]string{"OPENAI_BASE_URL": "http://10.1.2.3:4000/v1", "OPENAI_API_KEY": key}, routes: []string{"openai", `to: "http://10.1.2.3:4000/", private: true, plaintext: true`}, from: []string{"openai $OPENAI_API_KEY"}},
		"two of one":          {env: map[string]string{"OPENAI_BASE_URL": "https://gw.example/v1", "OPENAI_API_BASE": "https://gw.example/v1/", "OPENAI_API_KEY": key}, routes: []string{"openai", `to: "https://gw.example/", private: true`}, from: []string{"openai $OPENAI_API_KEY"}},
		"two servers":         {env: map[string]string{"OPENAI_BASE_URL": "https://gw.example/v1", "OPENAI_API_BASE": "https://other.example/v1", "OPENAI_API_KEY": key}, refused: "name two servers", remedy: "-u OPENAI_BASE_URL agent-init launch claude"},
		"gemini":              {env: map[string]string{"GOOGLE_GEMINI_BASE_URL": "https://gw.example/g", "GEMINI_API_KEY": key}, routes: []string{"gemini", `to: "https://gw.example/g/", private: true`}, from: []string{"gemini $GEMINI_API_KEY"}},
		"no key":              {env: map[string]string{"ANTHROPIC_BASE_URL": "https://gw.example"}, refused: "ANTHROPIC_BASE_URL names a server, and there is no key", remedy: "env -u ANTHROPIC_BASE_URL agent-init launch claude"},
		"another's key":       {env: map[string]string{"ANTHROPIC_BASE_URL": "https://gw.example", "OPENAI_API_KEY": key}, refused: "there is no key", remedy: "env -u ANTHROPIC_BASE_URL"},
		"this machine":        {env: map[string]string{"ANTHROPIC_BASE_URL": "http://localhost:4000", "ANTHROPIC_API_KEY": key}, refused: "--model-from-host"},
		"this machine, by IP": {env: map[string]string{"ANTHROPIC_BASE_URL": "http://[::1]:4000", "ANTHROPIC_API_KEY": key}, refused: "--model-from-host"},
		"by the flag":         {env: map[string]string{"ANTHROPIC_BASE_URL": "http://localhost:4000", "ANTHROPIC_API_KEY": key}, o: Options{ModelFromHost: "4000"}},
		"another version":     {env: map[string]string{"OPENAI_BASE_URL": "https://gw.example/v2", "OPENAI_API_KEY": key}, refused: "does not end in /v1", remedy: "env -u OPENAI_BASE_URL"},
		"a password":          {env: map[string]string{"ANTHROPIC_BASE_URL": "https://u:" + key + "@gw.example", "ANTHROPIC_API_KEY": key}, refused: "is no plain address", remedy: "env -u ANTHROPIC_BASE_URL"},
		"more than a server":  {env: map[string]string{"ANTHROPIC_BASE_URL": "https://gw.example\", private: false}\n#|", "ANTHROPIC_API_KEY": key}, refused: "is no plain address"},
		"a query":             {env: map[string]string{"ANTHROPIC_BASE_URL": "https://gw.example?k=v", "ANTHROPIC_API_KEY": key}, refused: "is no plain address"},
		"Bedrock":             {env: map[string]string{"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": key}, refused: "CLAUDE_CODE_USE_BEDROCK would have", remedy: "env -u CLAUDE_CODE_USE_BEDROCK agent-init launch claude"},
		"Bedrock's server":    {env: map[string]string{"ANTHROPIC_BEDROCK_BASE_URL": "https://gw.example"}, refused: "ANTHROPIC_BEDROCK_BASE_URL would have"},
		"Vertex and Foundry":  {env: map[string]string{"CLAUDE_CODE_USE_VERTEX": "true", "ANTHROPIC_FOUNDRY_RESOURCE": "r"}, refused: "ANTHROPIC_FOUNDRY_RESOURCE and CLAUDE_CODE_USE_VERTEX", remedy: "env -u ANTHROPIC_FOUNDRY_RESOURCE -u CLAUDE_CODE_USE_VERTEX"},
		"Vertex for Gemini":   {env: map[string]string{"GOOGLE_GENAI_USE_VERTEXAI": "true"}, refused: "GOOGLE_GENAI_USE_VERTEXAI"},
		"Azure":               {env: map[string]string{"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com"}, refused: "AZURE_OPENAI_ENDPOINT"},
		"Azure's base":        {env: map[string]string{"AZURE_API_BASE": "https://x.openai.azure.com"}, refused: "AZURE_API_BASE"},
		"handed over":         {env: map[string]string{"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": key}, o: Options{Env: []string{"CLAUDE_CODE_USE_BEDROCK=1"}}, from: []string{"anthropic $ANTHROPIC_API_KEY"}},
		"switched off":        {env: map[string]string{"CLAUDE_CODE_USE_BEDROCK": "0", "CLAUDE_CODE_USE_VERTEX": "", "MISTRAL_BASE_URL": "https://gw.example", "OLLAMA_HOST": "0.0.0.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Agent, c.o.Dir = "claude", dir
			for _, detach := range []bool{false, true} {
				c.o.Detach = detach
				p, err := f.Plan(t.Context(), c.o, Host{Env: c.env, UID: -1})
				if c.refused != "" {
					if err == nil || !strings.Contains(err.Error(), c.refused) || !strings.Contains(remedyOf(err), c.remedy) || strings.Contains(err.Error()+remedyOf(err), key) {
						t.Errorf("%v; remedy: %s", err, remedyOf(err))
					}
					continue
				}
				if err != nil {
					t.Fatal(err, remedyOf(err))
				}
				var routes, from []string
				for _, s := range p.steps {
					if i := slices.Index(s.words, lead); i >= 0 {
						routes = s.words[i+2:]
					}
					for _, in := range s.reads {
						from = append(from, in.key.route+" "+in.key.from())
					}
				}
				if !slices.Equal(routes, c.routes) || !slices.Equal(from, c.from) {
					t.Errorf("routes %q, keys %q", routes, from)
				}
				words := strings.Join(p.last.words, " ")
				if kept := strings.Contains(words, "-v agent-claude-keys:"); kept == (c.routes != nil || c.o.ModelFromHost != "") {
					t.Errorf("the keys of others: %s", words)
				}
				if mounted := strings.Contains(words, p.Name+"-routes:/etc/agent-init:ro"); mounted != (c.routes != nil) {
					t.Errorf("the routes: %s", words)
				}
			}
		})
	}
}

// TestKeysOfServers: each server has a volume of its own for its keys.
func TestKeysOfServers(t *testing.T) {
	seen := map[string]bool{}
	for _, servers := range [][]server{nil, {{route: "anthropic", to: "https://a.example/"}}, {{route: "anthropic", to: "https://b.example/"}}, {{route: "openai", to: "https://a.example/"}}, {{route: "anthropic", bearer: true}}} {
		name := keysVolume("claude", servers)
		if seen[name] || name != keysVolume("claude", servers) || !nameOf().MatchString(name) {
			t.Errorf("%v: %s", servers, name)
		}
		seen[name] = true
	}
}

// TestLead runs what changes the policy of an image, on a copy: the policy then has the route as it is to be, and one that
// the image has in other words is not taken for it.
func TestLead(t *testing.T) {
	program := os.Getenv("AGENT_INIT_BIN")
	if program == "" {
		program = "true" // the script's own test of what it wrote
	}
	for image, works := range map[string]bool{
		"broker:\n  openai: {optional: true}\n  anthropic: {optional: true}\n": true,
		"broker:\n  anthropic: {optional: true, models: [x]}\n":                false,
		"broker: {anthropic: {optional: true}}\n":                              false,
		"": false,
	} {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		write(t, filepath.Join(from, "allowlist.d/claude.yaml"), image)
		write(t, filepath.Join(from, "allowlist.txt"), "a.example\n")
		write(t, filepath.Join(to, "old"), "")
		script := strings.NewReplacer(policyDir+"/.", from+"/.", "/mnt", to, inside, program).Replace(lead)
		said, err := exec.Command("sh", "-c", script, "sh", "anthropic", `to: "https://gw.example/a/", private: true`).CombinedOutput()
		if (err == nil) != works {
			t.Errorf("%q: %v\n%s", image, err, said)
		}
		if !works {
			continue
		}
		if got := readFile(t, filepath.Join(to, "allowlist.d/claude.yaml")); !strings.HasSuffix(got, "  openai: {optional: true}\n  anthropic: {to: \"https://gw.example/a/\", private: true}\n") {
			t.Errorf("%s", got)
		}
		if _, err := os.Stat(filepath.Join(to, "old")); err == nil || readFile(t, filepath.Join(to, "allowlist.txt")) != "a.example\n" {
			t.Error("it is no copy")
		}
	}
}

// TestUnfollowed: what of a person's network does not go along is said.
func TestUnfollowed(t *testing.T) {
	env := map[string]string{"https_proxy": "http://" + key + "@proxy:3128", "NODE_EXTRA_CA_CERTS": "/ca.pem"}
	if notes := strings.Join(unfollowed(Options{}, env), "\n"); !strings.Contains(notes, "https_proxy") || !strings.Contains(notes, "--ca FILE") || strings.Contains(notes, key) {
		t.Error(notes)
	}
	if notes := unfollowed(Options{Authority: "/ca.pem"}, map[string]string{"NODE_EXTRA_CA_CERTS": "/ca.pem"}); notes != nil {
		t.Error(notes)
	}
}
