package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func builtin(t testing.TB, name string) *route.Route {
	t.Helper()
	r, ok := route.Builtin(name)
	if !ok {
		t.Fatalf("there is no route %s", name)
	}
	return &r
}

// ask is a request to /v1/messages with more fields.
func ask(fields string) string {
	return `{"model":"claude-opus-5-5","max_tokens":1,"messages":[{"role":"user","content":"hi"}]` +
		strings.TrimSuffix(","+fields, ",") + `}`
}

// says is one whose user says a block.
func says(block string) string {
	return `{"model":"claude-opus-5-5","messages":[{"role":"user","content":[{"type":"text","text":"hi"},` + block + `]}]}`
}

// claudeCode is what Claude Code 2.1.330 sends, with its tools and some turns.
const claudeCode = `{"model":"claude-opus-5-5","messages":[
	{"role":"user","content":[{"type":"text","text":"<system-reminder>\nx\n</system-reminder>"},
		{"type":"text","text":"look at https://example.com/{\"type\":\"url\"}","cache_control":{"type":"ephemeral","ttl":"1h"}}]},
	{"role":"assistant","content":[{"type":"thinking","thinking":"…","signature":"Eo8C"},
		{"type":"redacted_thinking","data":"AAAA"},
		{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls","source":{"type":"url","url":"https://x"},
			"tools":[{"type":"web_fetch_20250910"}],"mcp_servers":[{}]},"caller":{"type":"direct"}}]},
	{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":false,"content":[
		{"type":"text","text":"a"},{"type":"tool_reference","tool_name":"WebFetch"},
		{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBOR"}},
		{"type":"search_result","source":"https://example.com","title":"t","content":[{"type":"text","text":"x"}],
			"citations":{"enabled":true}},
		{"type":"document","source":{"type":"content","content":[{"type":"text","text":"x"},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBOR"}}]}}]},
		{"type":"tool_result","tool_use_id":"toolu_2","content":"b"}]},
	{"role":"system","content":[{"type":"text","text":"remember"},
		{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"Later","input_schema":{"type":"object"}}}},
		{"type":"tool_addition","tool":{"type":"tool_reference","name":"Bash"}},
		{"type":"tool_removal","tool":{"type":"tool_reference","name":"Bash"}}],"clear_at":"never"},
	{"role":"user","content":[{"type":"compaction","content":"so far","encrypted_content":null,"signature":null,
		"tool_changes":[{"type":"tool_addition","tool":{"type":"tool_reference","name":"Bash"}}]},
		{"type":"document","title":"a","context":null,"citations":{"enabled":true},
			"source":{"type":"text","media_type":"text/plain","data":"x"}},
		{"type":"text","text":"and?","citations":[{"type":"web_search_result_location","url":"https://example.com"}]}]}],
	"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.330"},
		{"type":"text","text":"You are Claude Code","cache_control":{"type":"ephemeral"}}],
	"tools":[{"name":"Bash","description":"Runs","input_schema":{"type":"object","properties":{
			"source":{"type":"url"},"type":{"type":"string"}}},"eager_input_streaming":true,"input_examples":[{"a":1}]},
		{"name":"ToolSearch","input_schema":{"type":"object"},"defer_loading":true},
		{"type":"custom","name":"a","input_schema":{},"strict":true,"allowed_callers":["direct"]},
		{"type":null,"name":"b","input_schema":{}},
		{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"str_replace_based_edit_tool"},
		{"type":"computer_20251124","name":"computer","display_width_px":1,"display_height_px":1},
		{"type":"browser_toolset_20260801","configs":{"navigate":{"enabled":true}}},
		{"type":"memory_20250818","name":"memory"},
		{"type":"tool_search_tool_regex","name":"tool_search_tool_regex"},
		{"type":"tool_search_tool_bm25_20251119","name":"tool_search_tool_bm25"}],
	"tool_choice":{"type":"auto"},"metadata":{"user_id":"{\"device_id\":\"d\"}"},"max_tokens":64000,"temperature":1,
	"thinking":{"type":"adaptive"},"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
	"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object"}}},
	"safeguards":[{"type":"x","classifier_context":"y"}],"context_hint":{"a":1},"speed":"fast",
	"diagnostics":{"previous_message_id":"msg_1"},"fallbacks":[{"model":"claude-sonnet-5-5","max_tokens":null}],
	"mcp_servers":[],"container":null,"service_tier":"auto","stream":true}`

func TestMessagesPass(t *testing.T) {
	r := builtin(t, "anthropic")
	for name, body := range map[string]string{
		"Claude Code": claudeCode,
		"OpenCode":    ask(`"stream":true,"system":[{"type":"text","text":"s"}],"tools":[{"name":"a","input_schema":{}}]`),
		"a question":  ask(``),
		"server_tool_use of a search for tools": says(`{"type":"server_tool_use","id":"s","name":"tool_search_tool_bm25",` +
			`"input":{"query":"x"}},{"type":"tool_search_tool_result","tool_use_id":"s","content":{"type":"x","tool_references":[]}}`),
		"fallbacks by default":  ask(`"fallbacks":"default"`),
		"a fallback in between": says(`{"type":"fallback","from":{"model":"a"},"to":{"model":"b"},"trigger":{"type":"refusal"}}`),
		"empty lists":           ask(`"tools":[],"system":[],"fallbacks":[]`),
	} {
		for _, body := range []string{body, strings.ReplaceAll(body, "\n", " ")} {
			for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens"} {
				e, refusal := Head(r, "POST", path, "beta=true", jsonHead)
				if refusal != nil {
					t.Fatal(refusal.Text)
				}
				told, refusal := Body(r, e, path, []byte(body))
				if refusal != nil {
					t.Errorf("%s: %+v", name, *refusal)
					continue
				}
				told.Rested = nil
				want := Told{Model: "claude-opus-5-5", Stream: strings.Contains(body, `"stream":true`), CountsUsage: true}
				if told != want {
					t.Errorf("%s tells %+v, want %+v", name, told, want)
				}
				if what := verdict(t, r, e, path, body); what != "" {
					t.Errorf("%s is refused for its %s", name, what)
				}
			}
		}
	}
}

// relays are what the provider would fetch, run or keep, with what they are refused for.
var relays = map[string][2]string{
	"a remote MCP server":      {ask(`"mcp_servers":[{"type":"url","url":"https://evil.example","name":"x"}]`), "tool"},
	"MCP servers as an object": {ask(`"mcp_servers":{"a":{"url":"https://evil.example"}}`), "content"},
	"a container":              {ask(`"container":"container_01"`), "tool"},
	"a container with skills":  {ask(`"container":{"skills":[{"type":"custom","skill_id":"s"}]}`), "tool"},
	"a thread":                 {ask(`"thread":{"type":"continue","previous_message_id":"msg_1"}`), "field"},
	"a new thread":             {ask(`"thread":{"type":"create"}`), "field"},
	"another one's bill":       {ask(`"billing_policy":{"type":"billing_policy","bill_to":"user_profile"}`), "field"},
	"an unknown field":         {ask(`"web_search_options":{}`), "field"},
	"an unknown text":          {ask(`"agent_id":"agent_01"`), "field"},
	"a field in other letters": {ask(`"Tools":[]`), "field"},
	"a profile":                {ask(`"user_profile_id":"x"`), "field"},

	"no model":                {`{"messages":[]}`, "model"},
	"a model that is no text": {`{"model":["claude"],"messages":[]}`, "model"},
	"a model of lines":        {`{"model":"a\nb","messages":[]}`, "model"},
	"no object":               {`[]`, "model"},
	"a stream by a text":      {ask(`"stream":"true"`), "field"},
	"a stream by a number":    {ask(`"stream":1`), "field"},

	"messages that are an object": {`{"model":"a","messages":{"role":"user","content":"x"}}`, "content"},
	"a message that is a text":    {`{"model":"a","messages":["x"]}`, "content"},
	"an unknown role":             {`{"model":"a","messages":[{"role":"tool","content":"x"}]}`, "content"},
	"no role":                     {`{"model":"a","messages":[{"content":"x"}]}`, "content"},
	"content that is an object":   {`{"model":"a","messages":[{"role":"user","content":{"type":"text","text":"x"}}]}`, "content"},
	"more in a message":           {`{"model":"a","messages":[{"role":"user","content":"x","tools":[{}]}]}`, "field"},
	"an unknown type":             {says(`{"type":"video","source":{"type":"base64"}}`), "content"},
	"no type":                     {says(`{"text":"x"}`), "content"},
	"a type that is a list":       {says(`{"type":["text"],"text":"x"}`), "content"},
	"a block that is a text":      {says(`"x"`), "content"},
	"a file for a container":      {says(`{"type":"container_upload","file_id":"file_01"}`), "content"},
	"an unknown scalar":           {says(`{"type":"text","text":"a","new_mark":7}`), "field"},
	"an unknown object":           {says(`{"type":"text","text":"x","attachment":{"url":"https://evil.example"}}`), "field"},
	"an unknown edit":             {ask(`"context_management":{"edits":[{"type":"store_20270101"}]}`), "content"},
	"edits that are none":         {ask(`"context_management":{"edits":{}}`), "content"},
	"an unknown compaction":       {ask(`"compaction":{"type":"keep"}`), "content"},
	"use of web_search":           {says(`{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"x"}}`), "tool"},
	"use of an unknown tool":      {says(`{"type":"server_tool_use","id":"s","name":"x","input":{}}`), "tool"},
	"use of a tool without name":  {says(`{"type":"server_tool_use","id":"s","name":{},"input":{}}`), "tool"},
	"a result of web_search":      {says(`{"type":"web_search_tool_result","tool_use_id":"s","content":[]}`), "tool"},
	"a result of code_execution":  {says(`{"type":"bash_code_execution_tool_result","tool_use_id":"s","content":{}}`), "tool"},
	"a result of MCP":             {says(`{"type":"mcp_tool_result","tool_use_id":"s","content":"x"}`), "tool"},
	"a list of MCP's tools":       {says(`{"type":"mcp_tool_listing","mcp_server_name":"s","tools":[]}`), "tool"},
	"a list for a text":           {says(`{"type":"text","text":["x"]}`), "content"},
	"an object for an ID":         {says(`{"type":"tool_result","tool_use_id":{"url":"x"},"content":"x"}`), "content"},
	"more in a fallback":          {ask(`"fallbacks":[{"model":"a","tools":[]}]`), "field"},
	"a fallback without a model":  {ask(`"fallbacks":[{}]`), "model"},
}

// bySource adds to relays each way to have a source fetched, at each depth.
func bySource(add func(name, body, what string)) {
	for name, source := range map[string]string{
		"url":          `{"type":"url","url":"https://evil.example/x.png"}`,
		"file":         `{"type":"file","file_id":"file_01"}`,
		"unknown":      `{"type":"s3","uri":"s3://bucket/x"}`,
		"no type":      `{"url":"https://evil.example"}`,
		"a text":       `"https://evil.example"`,
		"a list":       `[{"type":"url","url":"https://evil.example"}]`,
		"other case":   `{"type":"URL","url":"https://evil.example"}`,
		"with a blank": `{"type":" url","url":"https://evil.example"}`,
	} {
		image := `{"type":"image","source":` + source + `}`
		document := `{"type":"document","source":` + source + `}`
		for place, body := range map[string]string{
			"an image":                 says(image),
			"a document":               says(document),
			"an image of a result":     says(`{"type":"tool_result","tool_use_id":"t","content":[` + image + `]}`),
			"a document of a result":   says(`{"type":"tool_result","tool_use_id":"t","content":[` + document + `]}`),
			"an image of a document":   says(`{"type":"document","source":{"type":"content","content":[` + image + `]}}`),
			"an image of a found text": says(`{"type":"search_result","source":"x","title":"t","content":[` + image + `]}`),
			"an image deep down": says(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"document","source":` +
				`{"type":"content","content":[{"type":"document","source":{"type":"content","content":[` + image + `]}}]}}]}`),
			"an image of the system's": ask(`"system":[` + image + `]`),
			"an image in the middle": `{"model":"a","messages":[{"role":"system","content":[` + image + `]},` +
				`{"role":"assistant","content":[{"type":"text","text":"x"}]}]}`,
		} {
			add(place+" by "+name, body, "content")
		}
	}
	add("a source in another spelling", says(`{"type":"search_result","content":[],"Content":"x"}`), "field")
	add("a name that Go reads as another", says(`{"type":"tool_reſult","tool_use_id":"t"}`), "content")
	add("a member that Go reads as another", says(`{"type":"tool_use","id":"t","name":"a","toolſet_name":"x"}`), "field")
	add("a member that names a place", says(`{"type":"text","text":"x","file_url":"https://evil.example"}`), "field")
	add("a member that is a place", says(`{"type":"text","text":"x","from":" HTTPS://evil.example"}`), "field")
	add("a setting that names a place", ask(`"thinking":{"type":"adaptive","callback_url":"https://evil.example"}`), "field")
	add("a setting that is a place", ask(`"cache_control":{"type":"ephemeral","ttl":"https://evil.example"}`), "content")
	add("a schema that is elsewhere", ask(`"output_config":{"format":{"type":"json_schema","schema":{"$ref":"https://evil.example"}}}`), "content")
	add("a tool's schema that is elsewhere", ask(`"tools":[{"name":"a","input_schema":{"x":[{"$ref":"HTTPS://evil.example"}]}}]`), "content")
	add("more in context_management", ask(`"context_management":{"edits":[],"memory":{"id":"x"}}`), "field")
	add("more in a compaction", ask(`"compaction":{"type":"summarize","model":"x"}`), "field")
	add("a source of two kinds", says(`{"type":"image","source":{"type":"base64","data":"x","url":"https://evil.example"}}`), "field")
	add("an image with a url", says(`{"type":"image","url":"https://evil.example","source":{"type":"base64","data":"x"}}`), "field")
	add("a document with a file", says(`{"type":"document","file_id":"f","source":{"type":"text","data":"x"}}`), "field")
}

// byTool adds each tool of the provider's, and unknown ones, in each place that has tools.
func byTool(add func(name, body, what string)) {
	kinds := []string{"web_fetch_20270101", "computer", "url", "WEB_FETCH_20250910", "web_search", "Custom", "custom ", ""}
	for kind := range families {
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		tool := fmt.Sprintf(`{"type":%q,"name":"x","model":"claude-opus-5-5"}`, kind)
		add(kind+" in tools", ask(`"tools":[{"name":"a","input_schema":{}},`+tool+`]`), "tool")
		definition := `{"type":"tool_addition","tool":{"type":"tool_definition","definition":` + tool + `}}`
		add(kind+" in a system message",
			`{"model":"a","messages":[{"role":"user","content":"x"},{"role":"system","content":[`+definition+`]}]}`, "tool")
		add(kind+" in a user's message", says(definition), "tool")
		add(kind+" in a summary", says(`{"type":"compaction","content":"x","tool_changes":[`+definition+`]}`), "tool")
		add(kind+" in a result", says(`{"type":"tool_result","tool_use_id":"t","content":[`+definition+`]}`), "tool")
	}
	for name, tools := range map[string]string{
		"a lone tool":        `{"type":"web_fetch_20250910","name":"web_fetch"}`,
		"a list in a list":   `[[{"type":"web_fetch_20250910","name":"web_fetch"}]]`,
		"a tool by its name": `["web_fetch"]`,
	} {
		add(name, ask(`"tools":`+tools), "content")
	}
	add("a tool of a type that is a list", ask(`"tools":[{"type":["web_fetch_20250910"]}]`), "tool")
	add("more in a tool", ask(`"tools":[{"name":"x","input_schema":{},"server":{"url":"https://evil.example"}}]`), "field")
	add("an unknown change", says(`{"type":"tool_addition","tool":{"type":"skill","id":"s"}}`), "content")
	add("a server's tool", says(`{"type":"tool_addition","tool":{"type":"mcp_tool_reference","name":"a","server_name":"b"}}`), "tool")
	add("a server's tools", says(`{"type":"tool_addition","tool":{"type":"mcp_toolset_reference","server_name":"b"}}`), "tool")
	add("a change that is a text", says(`{"type":"tool_addition","tool":"web_fetch"}`), "content")
}

func TestMessagesRefuse(t *testing.T) {
	r := builtin(t, "anthropic")
	try := func(name, body, what string) {
		for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens"} {
			e, refusal := Head(r, "POST", path, "", jsonHead)
			if refusal != nil {
				t.Fatal(refusal.Text)
			}
			if got := verdict(t, r, e, path, body); got != what {
				t.Errorf("%s on %s: refused for %q, want %q: %s", name, path, got, what, body)
			}
		}
	}
	for name, c := range relays {
		try(name, c[0], c[1])
	}
	bySource(try)
	byTool(try)
}
