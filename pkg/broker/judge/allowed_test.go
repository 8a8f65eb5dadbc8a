package judge

import (
	"io"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestProviderTools shows that a word opens what it names and nothing else.
func TestProviderTools(t *testing.T) {
	search := ask(`"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8,"allowed_domains":["a.example"]}]`)
	later := ask(`"tools":[{"type":"web_search_20270101","name":"web_search"}]`)
	fetched := `{"type":"server_tool_use","id":"s","name":"web_fetch","input":{"url":"https://a.example"}},` +
		`{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"web_fetch_result","url":"https://a.example",` +
		`"content":{"type":"document","source":SOURCE}}}`
	text := `{"type":"text","media_type":"text/plain","data":"x"}`
	advisor := ask(`"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-opus-5-5","caching":{"type":"ephemeral"}}]`)
	servers := ask(`"mcp_servers":[{"type":"url","url":"https://mcp.example","name":"x"}],` +
		`"tools":[{"type":"mcp_toolset","mcp_server_name":"x","default_config":{"enabled":true}}]`)
	for _, c := range []struct {
		words string
		body  string
		what  string // it is refused for, or ""
	}{
		{"", search, "tool"}, {"web_search", search, ""}, {"web_fetch", search, "tool"}, {"web", search, "tool"},
		{"web_search_20250305", search, ""}, {"web_search_20260209", search, "tool"}, {"WEB_SEARCH", search, "tool"},
		{"web_search", later, "tool"}, {"web_search_20270101", later, ""}, // a later type is named in full
		{"web_fetch", says(strings.ReplaceAll(fetched, "SOURCE", text)), ""},
		{"web_search", says(strings.ReplaceAll(fetched, "SOURCE", text)), "tool"},
		{"web_fetch", says(strings.ReplaceAll(fetched, "SOURCE", `{"type":"url","url":"https://evil.example"}`)), "content"},
		{"web_fetch", says(`{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"other"}}`), "content"},
		{"web_fetch", says(`{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"web_fetch_tool_result_error"}}`), ""},
		{"advisor", advisor, ""}, {"advisor", strings.ReplaceAll(advisor, `"model":"claude-opus-5-5","caching"`, `"caching"`), "model"},
		{"mcp", servers, ""}, {"web_search", servers, "tool"},
		{"mcp", says(`{"type":"mcp_tool_result","tool_use_id":"s","content":[{"type":"image","source":{"type":"url"}}]}`), "content"},
		{"code_execution", ask(`"container":"container_01","tools":[{"type":"code_execution_20260521","name":"code_execution"}]`), ""},
		{"code_execution", ask(`"container":{"id":"container_01"}`), ""},
		{"code_execution", ask(`"container":{"id":null,"skills":[{"type":"custom","skill_id":"s"}]}`), "field"},
		{"code_execution", says(`{"type":"container_upload","file_id":"file_01"}`), "content"},
		{"code_execution web_search web_fetch mcp advisor", says(`{"type":"image","source":{"type":"file","file_id":"f"}}`), "content"},
	} {
		r := builtin(t, "anthropic")
		r.ProviderTools = strings.Fields(c.words)
		if got := verdict(t, r, &r.Endpoints[0], "/v1/messages", c.body); got != c.what {
			t.Errorf("with %q: refused for %q, want %q: %s", c.words, got, c.what, c.body)
		}
	}
}

// TestModels tries each place that names a model.
func TestModels(t *testing.T) {
	r := builtin(t, "anthropic")
	r.Models = []string{"claude-haiku-*", "claude-opus-5-5"}
	r.ProviderTools = []string{"advisor"}
	for body, what := range map[string]string{
		ask(``): "",
		`{"model":"claude-haiku-4-5-20251001","messages":[]}`:                                   "",
		`{"model":"claude-opus-5-5-1m","messages":[]}`:                                          "model",
		`{"model":"claude-haiku","messages":[]}`:                                                "model",
		`{"model":"Claude-Opus-5-5","messages":[]}`:                                             "model",
		`{"model":"","messages":[]}`:                                                            "model",
		`{"model":null,"messages":[]}`:                                                          "model",
		`{"model":"` + strings.Repeat("claude-haiku-", 99) + `","messages":[]}`:                 "model",
		ask(`"fallbacks":[{"model":"claude-haiku-4-5"}]`):                                       "",
		ask(`"fallbacks":[{"model":"claude-haiku-4-5"},{"model":"other"}]`):                     "model",
		ask(`"fallbacks":"default"`):                                                            "model",
		ask(`"fallbacks":null`):                                                                 "",
		ask(`"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-opus-5-5"}]`): "",
		ask(`"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-mythos-5"}]`): "model",
		says(`{"type":"fallback","from":{"model":"other"},"to":{"model":"claude-haiku-4-5"}}`):  "",
		says(`{"type":"fallback","from":{"model":"claude-haiku-4-5"},"to":{"model":"other"}}`):  "model",
		ask(`"tools":[{"name":"a","input_schema":{},"model":"other"}]`):                         "field",
		says(`{"type":"tool_addition","tool":{"type":"tool_definition","definition":` +
			`{"type":"advisor_20260301","name":"advisor","model":"other"}}}`): "model",
	} {
		if got := verdict(t, r, &r.Endpoints[0], "/v1/messages", body); got != what {
			t.Errorf("refused for %q, want %q: %s", got, what, body)
		}
	}
}

// TestFields shows that a route's fields are known by their name, and that the rules of others stay.
func TestFields(t *testing.T) {
	r := builtin(t, "anthropic")
	r.Fields = []string{"new_thing", "mcp_servers"}
	for body, what := range map[string]string{
		ask(`"new_thing":{"a":[1]}`):                            "",
		ask(`"other_thing":{"a":[1]}`):                          "field",
		says(`{"type":"text","text":"x","new_thing":{"a":1}}`):  "",
		ask(`"mcp_servers":[{"type":"url","url":"https://x"}]`): "tool",
	} {
		if got := verdict(t, r, &r.Endpoints[0], "/v1/messages", body); got != what {
			t.Errorf("refused for %q, want %q: %s", got, what, body)
		}
	}
}

// TestBodyByKind are the bodies without rules.
func TestBodyByKind(t *testing.T) {
	r := &route.Route{Name: "r"}
	for _, c := range []struct {
		body route.Body
		has  string
		what string
	}{
		{route.Empty, "", ""}, {route.Empty, "{}", "body"}, {route.Empty, " ", "body"},
		{route.Opaque, "", ""}, {route.Opaque, "\xff{", ""},
		{"new-kind", "{}", "body"}, {route.Messages, "", "json"}, {route.Messages, "{", "json"},
		{route.Opaque, strings.Repeat(" ", route.MaxBody+1), "size"}, {route.Messages, strings.Repeat(" ", route.MaxBody+1), "size"},
	} {
		_, refusal := Body(r, &route.Endpoint{Method: "POST", Path: "/", Body: c.body}, "/", []byte(c.has))
		got := ""
		if refusal != nil {
			got = refusal.What
		}
		if got != c.what {
			t.Errorf("%q with %.10q: refused for %q, want %q", c.body, c.has, got, c.what)
		}
	}
}

// TestJSONOfMessages holds that what two readers read in two ways passes none of them, also compressed.
func TestJSONOfMessages(t *testing.T) {
	r := builtin(t, "anthropic")
	for name, body := range map[string]string{
		"tools twice, harmless first": ask(`"tools":[],"tools":[{"type":"web_fetch_20250910"}]`),
		"tools twice, harmless last":  ask(`"tools":[{"type":"web_fetch_20250910"}],"tools":[]`),
		"tools twice by an escape":    ask(`"tools":[],"\u0074ools":[{"type":"web_fetch_20250910"}]`),
		"type twice":                  says(`{"type":"image","source":{"type":"url","url":"x","type":"base64"}}`),
		"the model twice":             ask(`"model":"other"`),
		"a byte order mark":           "\ufeff" + ask(``),
		"a second document":           ask(``) + ask(`"tools":[{"type":"web_fetch_20250910"}]`),
		"half a surrogate pair":       says(`{"type":"text","text":"\ud83d"}`),
		"UTF-16":                      strings.Join(strings.Split(ask(``), ""), "\x00") + "\x00",
		"NaN":                         ask(`"temperature":NaN`),
		"a huge number":               ask(`"max_tokens":` + strings.Repeat("9", 400)),
		"depth":                       ask(`"metadata":` + strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)),
	} {
		for _, encoding := range []string{"", "gzip", "deflate"} {
			unpacked, refusal := Unpack(encoding, strings.NewReader(string(pack(t, encoding, []byte(body)))), route.MaxBody, io.ReadAll)
			if refusal != nil {
				t.Fatal(refusal.Text)
			}
			if told, refusal := Body(r, &r.Endpoints[0], "/v1/messages", unpacked); refusal == nil || refusal.What != "json" {
				t.Errorf("%s: %+v, %+v", name, told, refusal)
			}
		}
	}
}
