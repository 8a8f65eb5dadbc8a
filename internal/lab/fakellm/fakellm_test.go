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
		{"POST", "/v1/chat/completions", `{"stream":true}`, 200, []string{"hello ", `"lab"`, `"finish_reason":"stop"`, "[DONE]"}},
		{"POST", "/v1/responses", `{}`, 200, []string{fakellm.Text}},
		{"POST", "/v1/responses", `{"stream":true}`, 200, []string{"event: response.created", "event: response.output_text.delta",
			fakellm.Text, "event: response.completed", `"sequence_number":7`}},
		{"GET", "/v1/responses", "", 426, nil},
		{"POST", "/compatible-mode/v1/chat/completions", `{}`, 200, []string{fakellm.Text}},
		{"POST", "/v1beta/models/gemini-x:generateContent", `{}`, 200, []string{fakellm.Text, `"modelVersion":"gemini-x"`}},
		{"POST", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", `{}`, 200, []string{"data: ", "hello ", `"lab"`, "STOP", "\n\n"}},
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

// TestKey: with a key, whoever shows none, another, or another beside it gets 401, and is counted so.
func TestKey(t *testing.T) {
	m := &fakellm.Model{Key: "real"}
	tests := []struct {
		query string
		head  http.Header
		want  int
	}{
		{"", nil, 401},
		{"", http.Header{"X-Api-Key": {"real"}}, 200},
		{"", http.Header{"Authorization": {"Bearer real"}}, 200},
		{"", http.Header{"X-Goog-Api-Key": {"real"}}, 200},
		{"?key=real", nil, 200},
		{"", http.Header{"X-Api-Key": {"other"}}, 401},
		{"", http.Header{"X-Api-Key": {"real"}, "Authorization": {"Bearer other"}}, 401},
		{"?key=other", http.Header{"X-Api-Key": {"real"}}, 401},
	}
	for _, tt := range tests {
		r, w := httptest.NewRequest("GET", "/v1/models"+tt.query, nil), httptest.NewRecorder()
		r.Header = tt.head
		if r.Header == nil {
			r.Header = http.Header{}
		}
		m.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%q %v: %d, want %d", tt.query, tt.head, w.Code, tt.want)
		}
	}
	if c := m.Calls(); c["GET /v1/models"] != 4 || c["401 GET /v1/models"] != 4 {
		t.Errorf("counted %v", c)
	}
	if m.Forget(); len(m.Calls()) != 0 {
		t.Errorf("after Forget: %v", m.Calls())
	}
}

// TestTools: a tool that takes a command is called, in the form of each API, until its result is told.
func TestTools(t *testing.T) {
	srv := httptest.NewServer(&fakellm.Model{Tools: true, Hints: true})
	defer srv.Close()
	const command = "curl -sS https://refused.example.com/; seq -f lab-%g 42 42"
	const schema = `{"type":"object","properties":{"command":{"type":"string"},"note":{"type":"string"},"background":{"type":"boolean"},` +
		`"mode":{"type":"string","enum":["sync"]}},"required":["command","note","background","mode"]}`
	tests := []struct {
		path, tools string
		want        []string
	}{
		{"/v1/messages", `"tools":[{"name":"Read"},{"name":"Bash","input_schema":` + schema + `}]`, []string{`"tool_use"`}},
		{"/v1/chat/completions", `"tools":[{"type":"function","function":{"name":"run_shell_command","parameters":` + schema + `}}]`,
			[]string{`"tool_calls"`}},
		{"/v1/responses", `"tools":[{"type":"function","name":"shell","parameters":` + schema + `}]`, []string{`"function_call"`}},
		{"/v1/responses", `"input":[{"type":"additional_tools","tools":[{"type":"custom","name":"exec"}]}]`,
			[]string{`"custom_tool_call"`, "tools.exec_command"}},
		{"/v1beta/models/g:generateContent", `"tools":[{"functionDeclarations":[{"name":"run_shell_command","parametersJsonSchema":` + schema + `}]}]`,
			[]string{`"functionCall"`}},
		{"/v1beta/models/g:streamGenerateContent", `"tools":[{"functionDeclarations":[{"name":"run_shell_command","parameters":` + schema + `}]}]`,
			[]string{`"functionCall"`}},
	}
	ask := func(path, body string) string {
		t.Helper()
		resp, err := http.Post(srv.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	for _, tt := range tests {
		for _, stream := range []string{"", `"stream":true,`} {
			got := ask(tt.path, "{"+stream+tt.tools+"}")
			for _, want := range append(tt.want, command) {
				if !strings.Contains(got, want) {
					t.Errorf("%s %s: no %q in %q", tt.path, tt.tools, want, got)
				}
			}
			if told := ask(tt.path, "{"+stream+tt.tools+`,"x":"`+command+` lab-42 agent-init: the policy refused refused.example.com"}`); strings.Contains(told, "seq -f") || strings.Contains(told, "did not") || !strings.Contains(told, "hello ") {
				t.Errorf("%s, told the result: %q", tt.path, told)
			}
		}
	}
	for _, result := range []string{"not found", "agent-init: the policy refused refused.example.com", "lab-42 Could not resolve host"} {
		if got := ask("/v1/messages", `{"x":"`+command+" "+result+`"}`); strings.Contains(got, fakellm.Text) {
			t.Errorf("told %q: %q", result, got)
		}
	}
	if got := ask("/v1/messages", "{}"); !strings.Contains(got, fakellm.Text) {
		t.Errorf("without a tool: %q", got)
	}
}
