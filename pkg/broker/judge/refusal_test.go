package judge

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func TestResponse(t *testing.T) {
	const text = `"message":"refused by agent-init: t \"x\""`
	openai := `{"error":{` + text + `,"type":"invalid_request_error","param":null,"code":"broker_refused"}}`
	for _, c := range []struct {
		what   string
		shape  route.Shape
		body   route.Body
		status int
		answer string
	}{
		{"tool", route.AnthropicShape, route.Messages, 403, `{"type":"error","error":{"type":"permission_error",` + text + `}}`},
		{"path", route.AnthropicShape, route.Empty, 403, `{"type":"error","error":{"type":"permission_error",` + text + `}}`},
		{"budget", route.AnthropicShape, route.Messages, 402, `{"type":"error","error":{"type":"billing_error",` + text + `}}`},
		{"size", route.AnthropicShape, route.Messages, 413, `{"type":"error","error":{"type":"request_too_large",` + text + `}}`},
		{"upstream", route.AnthropicShape, route.Messages, 502, `{"type":"error","error":{"type":"api_error",` + text + `}}`},
		{"tool", route.OpenAIShape, route.Messages, 403, `{"type":"error","error":{"type":"permission_error",` + text + `}}`},
		{"tool", route.OpenAIShape, route.Responses, 400, openai},
		{"budget", route.OpenAIShape, route.Responses, 400, openai},
		{"size", route.OpenAIShape, route.Responses, 400, openai},
		{"path", route.OpenAIShape, route.Empty, 400, openai}, // Codex asks for alpha/search
		{"tool", route.OpenAIShape, route.Chat, 403, openai},
		{"budget", route.OpenAIShape, route.Chat, 403, openai},
		{"upgrade", route.OpenAIShape, route.Empty, 426, openai},
		{"upstream", route.OpenAIShape, route.Responses, 502, openai},
		{"tool", route.PlainShape, route.Responses, 400, openai},
		{"late", route.OpenAIShape, route.Responses, 504, openai},
		{"busy", route.AnthropicShape, route.Messages, 503, `{"type":"error","error":{"type":"api_error",` + text + `}}`},
		{"busy", route.GeminiShape, route.Generate, 503,
			`{"error":{"code":503,` + text + `,"status":"UNAVAILABLE","details":[]}}`},
		{"tool", route.GeminiShape, route.Generate, 403,
			`{"error":{"code":403,` + text + `,"status":"PERMISSION_DENIED","details":[]}}`},
		{"budget", route.GeminiShape, route.Generate, 403,
			`{"error":{"code":403,` + text + `,"status":"PERMISSION_DENIED","details":[]}}`},
		{"path", route.PlainShape, route.Opaque, 403,
			`{"message":"refused by agent-init: t \"x\"","error":{` + text + `}}`},
	} {
		status, contentType, answer := (&Refusal{What: c.what, Text: `t "x"`}).Response(c.shape, c.body)
		if status != c.status || contentType != "application/json" || string(answer) != c.answer {
			t.Errorf("%s on %q %q: %d %s\n%s, want %d\n%s", c.what, c.shape, c.body, status, contentType, answer, c.status, c.answer)
		}
	}
}

// TestRefusalsAreFinal holds that no refusal has a word or a status over which a client tries again, also when it
// repeats what the agent wrote.
func TestRefusalsAreFinal(t *testing.T) {
	r := builtin(t, "anthropic")
	_, byType := Body(r, &r.Endpoints[0], "/v1/messages", []byte(says(`{"type":"overloaded_error rate_limit_error \u0000\u001b[2J"}`)))
	_, byPath := Head(r, "POST", "/v1/rate_limit_error/overloaded_error", "", http.Header{})
	_, byLength := Body(r, &r.Endpoints[0], "/v1/messages", []byte(ask(`"`+strings.Repeat("x", 1<<20)+`":1`)))
	for _, refusal := range []*Refusal{byType, byPath, byLength} {
		for _, shape := range []route.Shape{route.PlainShape, route.AnthropicShape, route.OpenAIShape, route.GeminiShape} {
			status, _, answer := refusal.Response(shape, route.Empty)
			if strings.Contains(string(answer), "overloaded_error") || strings.Contains(string(answer), "rate_limit") {
				t.Errorf("%s", answer)
			}
			if status != 400 && status != 403 {
				t.Errorf("%+v has the status %d", *refusal, status)
			}
			if !json.Valid(answer) || len(answer) > 700 || strings.ContainsAny(string(answer), "\x00\x1b") {
				t.Errorf("%d bytes: %.200q", len(answer), answer)
			}
		}
	}
}

// TestRefusalsSayWhat holds what a person reads: what was refused, and what would let it pass.
func TestRefusalsSayWhat(t *testing.T) {
	r := builtin(t, "anthropic")
	r.Models = []string{"claude-*", "a"}
	for body, want := range map[string]string{
		says(`{"text":"x"}`):    "content without a type is not allowed",
		says(`{"type":"x\ny"}`): `content of the type x\ny is not allowed, or not known to agent-init`,
		says(`{"type":"image","source":{"type":"url","url":"https://x"}}`): "a source by url is not allowed, since the provider " +
			"would fetch it; base64 is",
		ask(`"new_field":1`): "field new_field is not known to agent-init; route anthropic lets it pass with fields: [new_field]",
		ask(`"tools":[{"type":"web_search_20250305"}]`): "web_search_20250305 is run by the provider, which could fetch or keep " +
			"what it is told; route anthropic lets it pass with provider_tools: [web_search]",
		ask(`"tools":[{"type":"new_1"}]`): "a tool of the type new_1 is not known to agent-init; route anthropic lets it pass " +
			"with provider_tools: [new_1]",
		`{"model":"gpt-5","messages":[]}`: "model gpt-5 is not on the list of route anthropic (models)",
		`{"model":"a","model":"b"}`:       `the body is not JSON that can be judged: duplicate object member name "model"`,
	} {
		_, refusal := Body(r, &r.Endpoints[0], "/v1/messages", []byte(body))
		if refusal == nil || refusal.Text != want {
			t.Errorf("%s\n%+v, want\n%s", body, refusal, want)
		}
	}
}

// TestTemporary: clients try again after a status of 500 and above. Just those refusals have one that another try may mend.
func TestTemporary(t *testing.T) {
	for _, what := range []string{overBudget, tooLarge, noWebSocket, noUpstream, lateAnswer, busy, slowRequest, badToken, noVersion, "server", "path", "tool"} {
		for _, shape := range []route.Shape{route.PlainShape, route.AnthropicShape, route.OpenAIShape, route.GeminiShape, route.GitShape, route.TextShape, route.NPMShape} {
			r := &Refusal{What: what}
			if status, _, _ := r.Response(shape, route.Empty); (status >= 500) != r.Temporary() {
				t.Errorf("%s, %v: status %d, temporary: %v", what, shape, status, r.Temporary())
			}
		}
	}
}
