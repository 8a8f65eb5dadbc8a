package state

import (
	"strings"
	"testing"
)

// TestStatusOfRoutes: who holds the key of each API is what the status begins with.
func TestStatusOfRoutes(t *testing.T) {
	s := State{Phase: PhaseReady}
	var b strings.Builder
	if s.Write(&b, true, nil, false); strings.Contains(b.String(), "broker") || strings.Contains(b.String(), "keys") {
		t.Errorf("without a route: %s", b.String())
	}
	s.Broker = Broker{OK: true, UID: 64902, Port: 41234, Restarts: 1, Routes: []Route{
		{Name: "anthropic", To: "https://api.anthropic.com/", Present: true, Source: "file:/run/secrets/anthropic", Fingerprint: "d9d93430",
			Fault: "it is empty", Requests: 12, Refusals: 3, TokensIn: 5123, TokensOut: 207, LastError: "the API answered 529\x1b[2J"},
		{Name: "ollama", To: "http://10.0.0.9:11434/", Present: true, Source: "none", Requests: 1},
		{Name: "openai", To: "https://api.openai.com/", Why: "there is no credential at env:OPENAI_API_KEY", ByName: true},
		{Name: "tickets", To: "https://tickets.example/", Why: "there is no credential at file:/run/secrets/tickets"},
	}}
	b.Reset()
	s.Write(&b, true, nil, false)
	for _, want := range []string{
		"confined and healthy, but not proved: no self-test was run\n" +
			"keys       anthropic: the agent holds no key; the broker asks api.anthropic.com with that of file:/run/secrets/anthropic (fingerprint d9d93430)\n",
		"ollama: the broker asks 10.0.0.9:11434, without a key\n",
		"openai: the agent reaches api.openai.com by name and holds what it logs in with (there is no credential at env:OPENAI_API_KEY)\n",
		"tickets: nobody reaches tickets.example (there is no credential at file:/run/secrets/tickets)\n",
		"broker     up (uid 64902), at 127.0.0.1:41234, restarted once\n",
		"anthropic: 12 requests, 3 refused; 5123 tokens in, 207 out\n", "the one before is used: it is empty\n",
		"ollama: 1 request, 0 refused\n",
		"its last error: the API answered 529?[2J\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
