package fakellm_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

func TestAPI(t *testing.T) {
	srv := httptest.NewServer(fakellm.New())
	defer srv.Close()
	tests := []struct {
		method, path, body string
		status             int
		want               []string // in this order
	}{
		{"GET", "/api/hello", "", 200, []string{"hello"}},
		{"GET", "/v1/models", "", 200, []string{`"claude-sonnet-4-5"`}},
		{"GET", "/v1/models/claude-opus-4", "", 200, []string{`"id":"claude-opus-4"`}},
		{"POST", "/v1/messages/count_tokens", "{}", 200, []string{`"input_tokens":10`}},
		{"POST", "/v1/messages?beta=true", `{"model":"claude-x"}`, 200, []string{`"model":"claude-x"`, `"stop_reason":"end_turn"`}},
		{"POST", "/v1/messages", `{"stream":true}`, 200, []string{"event: message_start", "event: content_block_delta", `"hello "`,
			`"lab"`, "event: content_block_stop", `"stop_reason":"end_turn"`, "event: message_stop"}},
		{"POST", "/v1/messages", `no json`, 400, []string{"invalid_request_error"}},
		{"POST", "/v1/chat/completions", `{}`, 200, []string{fakellm.Text}},
		{"POST", "/v1/chat/completions", `{"stream":true}`, 200, []string{fakellm.Text, `"finish_reason":"stop"`, "[DONE]"}},
		{"POST", "/v1/responses", `{}`, 200, []string{fakellm.Text}},
		{"POST", "/v1/responses", `{"stream":true}`, 200, []string{"event: response.created", "event: response.output_text.delta",
			fakellm.Text, "event: response.completed", `"sequence_number":4`}},
		{"GET", "/v1/responses", "", 426, nil},
		{"POST", "/compatible-mode/v1/chat/completions", `{}`, 200, []string{fakellm.Text}},
		{"POST", "/v1beta/models/gemini-x:generateContent", `{}`, 200, []string{fakellm.Text, `"modelVersion":"gemini-x"`}},
		{"POST", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", `{}`, 200, []string{"data: ", fakellm.Text, "\n\n"}},
		{"POST", "/v1beta/models/gemini-x:countTokens", `{}`, 200, []string{`"totalTokens":10`}},
		{"POST", "/v1beta/models/gemini-x:other", `{}`, 404, nil},
		{"GET", "/v1/organizations", "", 404, []string{"not_found_error"}},
	}
	for _, tt := range tests {
		req, err := http.NewRequest(tt.method, srv.URL+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status {
			t.Errorf("%s %s: %s %v: %s", tt.method, tt.path, resp.Status, err, body)
			continue
		}
		rest := string(body)
		for _, want := range tt.want {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("%s %s %s: no %q in %q", tt.method, tt.path, tt.body, want, rest)
				break
			}
			rest = after
		}
	}
}
