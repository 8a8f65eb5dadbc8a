package judge

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// codexFrame is a request of Codex's with all of its tools in the first item.
const codexFrame = `{"model":"gpt-6.1-sol","instructions":"Be brief.","input":[
	{"type":"additional_tools","role":"developer","tools":[
		{"type":"custom","name":"exec","description":"Run JS","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}},
		{"type":"function","name":"wait","description":"","strict":false,"parameters":{"type":"object","properties":{"url":{"type":"string"}}}},
		{"type":"namespace","name":"agents","description":"","tools":[{"type":"function","name":"spawn","parameters":{}}]},
		{"type":"tool_search","execution":"client","description":"","parameters":{}}]},
	{"type":"message","role":"user","content":[{"type":"input_text","text":"See https://example.org"}],
		"internal_chat_message_metadata_passthrough":{"turn_id":"1"}},
	{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"a"}],"content":null,"encrypted_content":"b"},
	{"type":"custom_tool_call","call_id":"c","name":"exec","input":"tools.f()","id":"ctc_1","status":"completed"},
	{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},
	{"type":"function_call","call_id":"d","name":"wait","arguments":"{\"url\":\"https://example.org\"}","namespace":"agents"},
	{"type":"function_call_output","call_id":"d","output":"https://example.org"},
	{"type":"local_shell_call","call_id":"e","action":{"type":"exec","command":["ls"],"env":{}},"status":"completed"},
	{"type":"web_search_call","status":"completed","action":{"type":"open_page","url":"https://example.org"}},
	{"type":"compaction","encrypted_content":"c"},
	%s
	{"role":"user","content":"go on"}],
	"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{"effort":"medium","summary":"auto"},"store":false,"stream":true,
	"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","text":{"verbosity":"low","format":{"type":"json_schema","name":"n",
	"schema":{"type":"object","properties":{"file_url":{"type":"string"}}}}},"client_metadata":{"x-codex-installation-id":"i"}}`

func responsesOf(body string) asked { return asked{route: "openai", path: "/v1/responses", body: body} }

func TestResponsesPass(t *testing.T) {
	for name, body := range map[string]string{
		"codex":              with(codexFrame, ""),
		"codex, compacts":    with(codexFrame, `{"type":"compaction_trigger"},`),
		"codex, thinks less": with(codexFrame, `{"type":"configuration_update","reasoning":{"effort":"low"}},`),
		"opencode": `{"model":"gpt-5.4-nano","input":[{"role":"developer","content":"x"},{"role":"user","content":[{"type":"input_text","text":"y"}]},
			{"role":"assistant","content":[{"type":"output_text","text":"z"}],"id":"msg_1"}],"max_output_tokens":1,"store":false,"include":[],
			"prompt_cache_key":"p","reasoning":{"effort":"low"},"tools":[{"type":"function","name":"bash","description":"d","parameters":{"$schema":
			"https://json-schema.org/draft/2020-12/schema","$ref":"#/definitions/a"},"strict":false}],"tool_choice":"auto","stream":true}`,
		"a text":           `{"model":"gpt-5","input":"hello","stream":true}`,
		"nulls":            `{"model":"gpt-5","input":"x","prompt":null,"previous_response_id":null,"background":null,"stream":true,"tools":null,"what":null}`,
		"a file inside":    `{"model":"m","stream":true,"input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA"}]}]}`,
		"a local shell":    `{"model":"m","stream":true,"input":"x","tools":[{"type":"shell","environment":{"type":"local"}},{"type":"apply_patch"},{"type":"local_shell"}]}`,
		"a computer":       `{"model":"m","stream":true,"input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,A"}}],"tools":[{"type":"computer_use_preview","display_width":1,"display_height":1,"environment":"linux"}]}`,
		"a choice":         `{"model":"m","stream":true,"input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}}`,
		"a found tool":     `{"model":"m","stream":true,"input":[{"type":"tool_search_call","call_id":"c","execution":"client","arguments":{"query":"x"}},{"type":"tool_search_output","call_id":"c","execution":"client","tools":[{"type":"function","name":"f","parameters":{},"defer_loading":true}]}]}`,
		"kept by default":  `{"model":"m","stream":true,"input":"x","store":true,"metadata":{"repo":"https://example.org"}}`,
		"context, compact": `{"model":"m","stream":true,"input":"x","context_management":[{"type":"compaction","compact_threshold":1000}]}`,
	} {
		model := "m"
		switch name {
		case "codex", "codex, compacts", "codex, thinks less":
			model = "gpt-6.1-sol"
		case "opencode":
			model = "gpt-5.4-nano"
		case "a text", "nulls":
			model = "gpt-5"
		}
		responsesOf(body).passes(t, name, Told{Model: model, Stream: true, CountsUsage: true})
	}
}

// providersTools are those that the references list, each as it would be asked for.
var providersTools = []string{
	`{"type":"web_search"}`, `{"type":"web_search","external_web_access":true}`, `{"type":"web_search","external_web_access":false}`,
	`{"type":"web_search_2025_08_26","filters":{"allowed_domains":["example.org"]}}`,
	`{"type":"web_search_preview"}`, `{"type":"web_search_preview_2025_03_11"}`,
	`{"type":"file_search","vector_store_ids":["vs_1"]}`,
	`{"type":"code_interpreter","container":{"type":"auto","network_policy":{"type":"allowlist","allowed_domains":["example.org"]}}}`,
	`{"type":"code_interpreter","container":"cntr_1"}`,
	`{"type":"image_generation","input_image_mask":{"image_url":"https://example.org/x"}}`,
	`{"type":"mcp","server_label":"x","server_url":"https://example.org/mcp"}`, `{"type":"mcp","server_label":"x","connector_id":"connector_gmail"}`,
	`{"type":"mcp","server_label":"x","tunnel_id":"t"}`,
	`{"type":"shell"}`, `{"type":"shell","environment":null}`, `{"type":"shell","environment":{"type":"container_auto"}}`,
	`{"type":"shell","environment":{"type":"container_reference","container_id":"c"}}`,
	`{"type":"programmatic_tool_calling"}`, `{"type":"x_search"}`, `{"type":"browser_search"}`, `{"type":"collections_search"}`,
	`{"type":"code_execution"}`, `{"type":"openrouter:web_search"}`, `{"type":"openrouter:bash"}`, `{"type":"web_fetch"}`, `{"type":"tool_of_2028"}`,
	`{"type":""}`, `{"type":"Function"}`, `{"type":"function "}`, `{"type":"web\u005fsearch"}`,
}

func TestResponsesRefuseProvidersTools(t *testing.T) {
	for place, frame := range map[string]string{
		"tools":              `{"model":"m","input":"x","tools":[{"type":"function","name":"f"},%s]}`,
		"additional_tools":   `{"model":"m","input":[{"type":"additional_tools","role":"developer","tools":[%s]}]}`,
		"tool_search_output": `{"model":"m","input":[{"role":"user","content":"x"},{"type":"tool_search_output","call_id":"c","tools":[%s]}]}`,
		"namespace":          `{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[%s]}]}`,
		"namespaces":         `{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"n","tools":[%s]}]}]}]}`,
	} {
		for _, tool := range providersTools {
			responsesOf(with(frame, tool)).refuses(t, place+" with "+tool, "tool")
		}
	}
	for _, tool := range []string{`{"type":"web_search_preview"}`, `{"type":"mcp","server_label":"x"}`, `{"type":"image_generation"}`} {
		responsesOf(with(`{"model":"m","input":"x","tool_choice":%s}`, tool)).refuses(t, "tool_choice", "tool")
		responsesOf(with(`{"model":"m","input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[%s]}}`, tool)).refuses(t, "allowed_tools", "tool")
	}
}

// addresses are what must not be fetched, and what could be taken for it.
var addresses = []string{
	`"https://example.org/a.png"`, `"http://169.254.169.254/"`, `"HTTPS://example.org"`, `" data:image/png;base64,AA"`, `"DATA:image/png;base64,AA"`,
	`"Data:image/png;base64,AA"`, `"\tdata:,x"`, `"file:///etc/passwd"`, `"//example.org"`, `"gs://bucket/x"`, `"s3://bucket/x"`, `""`, `"x"`, `1`, `true`,
	`["https://example.org"]`, `{"url":"https://example.org"}`, `{"url":"data:,x","URL":"https://example.org"}`, `{"Url":"https://example.org"}`, `[]`,
}

func TestResponsesRefuseWhatIsFetched(t *testing.T) {
	for place, frame := range map[string]string{
		"message":                 `{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":%s}]}]}`,
		"message without a type":  `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":%s}]}]}`,
		"file_data":               `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_data":%s}]}]}`,
		"file_url":                `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":%s}]}]}`,
		"function_call_output":    `{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":%s}]}]}`,
		"custom_tool_call_output": `{"model":"m","input":[{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_file","file_url":%s}]}]}`,
		"computer_call_output":    `{"model":"m","input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":%s}}]}`,
		"reasoning":               `{"model":"m","input":[{"type":"reasoning","summary":[],"content":[{"type":"input_image","image_url":%s}]}]}`,
		"image_url":               `{"model":"m","input":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%s}}]}]}`,
	} {
		for _, address := range addresses {
			responsesOf(with(frame, address)).refuses(t, place+" with "+address, "")
		}
	}
	responsesOf(`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":"data:,x"}]}]}`).refuses(t, "file_url with data", "content")
}

func TestResponsesRefuse(t *testing.T) {
	for name, c := range map[string]struct{ body, what string }{
		"a stored prompt":       {`{"model":"m","input":"x","prompt":{"id":"pmpt_1"}}`, "content"},
		"a stored prompt alone": {`{"prompt":{"id":"pmpt_1"}}`, "model"},
		"a former answer":       {`{"model":"m","input":"x","previous_response_id":"resp_1"}`, "content"},
		"a conversation":        {`{"model":"m","input":"x","conversation":"conv_1"}`, "content"},
		"a conversation by id":  {`{"model":"m","input":"x","conversation":{"id":"conv_1"}}`, "content"},
		"in the background":     {`{"model":"m","input":"x","background":true}`, "field"},
		"background, a text":    {`{"model":"m","input":"x","background":"true"}`, "field"},
		"stream, a number":      {`{"model":"m","input":"x","stream":1}`, "field"},
		"a reference":           {`{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`, "content"},
		"an id alone":           {`{"model":"m","input":[{"id":"msg_1"}]}`, "content"},
		"an id, null":           {`{"model":"m","input":[{"type":null,"id":"msg_1","role":"user"}]}`, "content"},
		"an item by a text":     {`{"model":"m","input":["msg_1"]}`, "content"},
		"an input alone":        {`{"model":"m","input":{"role":"user","content":"x"}}`, "content"},
		"a kept image":          {`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}]}`, "content"},
		"a kept file":           {`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`, "content"},
		"a kept screenshot":     {`{"model":"m","input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","file_id":"f"}}]}`, "content"},
		"an unknown part":       {`{"model":"m","input":[{"role":"user","content":[{"type":"input_video","video_url":"data:,"}]}]}`, "content"},
		"a part by a text":      {`{"model":"m","input":[{"role":"user","content":["https://example.org"]}]}`, "content"},
		"an unknown item":       {`{"model":"m","input":[{"type":"item_of_2028"}]}`, "content"},
		"mcp_list_tools":        {`{"model":"m","input":[{"type":"mcp_list_tools","id":"i","server_label":"s","tools":[]}]}`, "tool"},
		"mcp_call":              {`{"model":"m","input":[{"type":"mcp_call","id":"i","server_label":"s","name":"n","arguments":""}]}`, "tool"},
		"mcp_approval_response": {`{"model":"m","input":[{"type":"mcp_approval_response","approval_request_id":"i","approve":true}]}`, "tool"},
		"file_search_call":      {`{"model":"m","input":[{"type":"file_search_call","id":"i","queries":[]}]}`, "tool"},
		"code_interpreter_call": {`{"model":"m","input":[{"type":"code_interpreter_call","id":"i","container_id":"c"}]}`, "tool"},
		"image_generation_call": {`{"model":"m","input":[{"type":"image_generation_call","id":"i"}]}`, "tool"},
		"program":               {`{"model":"m","input":[{"type":"program","id":"i","code":"fetch()"}]}`, "tool"},
		"shell_call elsewhere":  {`{"model":"m","input":[{"type":"shell_call","call_id":"c","action":{},"environment":{"type":"container_reference","container_id":"c"}}]}`, "tool"},
		"an unknown field":      {`{"model":"m","input":"x","plugin":[]}`, "field"},
		"a field in capitals":   {`{"model":"m","input":"x","Tools":[{"type":"web_search"}]}`, "field"},
		"a type respelt":        {`{"model":"m","input":"x","tools":[{"type":"function","name":"f","Type":"web_search"}]}`, "field"},
		"a tool's place":        {`{"model":"m","input":"x","tools":[{"type":"function","name":"f","server_url":"https://example.org"}]}`, "field"},
		"a part respelt":        {`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x","Type":"input_image","image_url":"https://example.org"}]}]}`, "field"},
		"a schema elsewhere":    {`{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":{"$ref":"https://example.org/s.json"}}]}`, "content"},
		"text's schema":         {`{"model":"m","input":"x","text":{"format":{"type":"json_schema","schema":{"items":[{"$ref":" http://example.org"}]}}}}`, "content"},
		"an edit":               {`{"model":"m","input":"x","context_management":[{"type":"fetch"}]}`, "content"},
		"moderation":            {`{"model":"m","input":"x","moderation":{}}`, "model"},
		"settings elsewhere":    {`{"model":"m","input":"x","reasoning":{"effort":"https://example.org"}}`, "content"},
		"settings of places":    {`{"model":"m","input":"x","reasoning":{"x":{"callback_url":"x"}}}`, "field"},
		"no model":              {`{"input":"x"}`, "model"},
		"two models":            {`{"model":["a","b"],"input":"x"}`, "model"},
		"a model that searches": {`{"model":"o3-deep-research","input":"x"}`, "model"},
		"tools alone":           {`{"model":"m","input":"x","tools":{"type":"function","name":"f"}}`, "content"},
		"a list":                {`[{"model":"m","input":"x"}]`, "model"},
	} {
		responsesOf(c.body).refuses(t, name, c.what)
	}
}

func TestResponsesWords(t *testing.T) {
	cached := responsesOf(`{"model":"m","input":"x","tools":[{"type":"web_search","external_web_access":false}]}`)
	live := responsesOf(`{"model":"m","input":"x","tools":[{"type":"web_search","external_web_access":true}]}`)
	unsaid := responsesOf(`{"model":"m","input":"x","tools":[{"type":"web_search"}]}`)
	preview := responsesOf(`{"model":"m","input":"x","tools":[{"type":"web_search_preview","external_web_access":false}]}`)
	pass := Told{Model: "m", CountsUsage: true}
	for _, a := range []*asked{&cached, &live, &unsaid, &preview} {
		a.change = allow("web_search_cached")
	}
	cached.passes(t, "cached", pass)
	live.refuses(t, "live", "tool")
	unsaid.refuses(t, "unsaid", "tool")
	preview.refuses(t, "preview", "tool") // which has no such word
	for _, a := range []*asked{&cached, &live, &unsaid, &preview} {
		a.change = allow("web_search")
		a.passes(t, "allowed", pass)
	}

	later := responsesOf(`{"model":"m","input":"x","tools":[{"type":"tool_of_2028","server_url":"https://example.org"}]}`)
	later.change = allow("tool_of_2028")
	later.passes(t, "a later tool", pass)

	field := responsesOf(`{"model":"m","input":"x","field_of_2028":{"a":1},"previous_response_id":"r"}`)
	field.change = func(r *route.Route) { r.Fields = []string{"field_of_2028", "previous_response_id"} }
	field.passes(t, "fields", pass)

	listed := responsesOf(`{"model":"o3-deep-research","input":"x"}`)
	listed.change = func(r *route.Route) { r.Models = []string{"*"} }
	listed.refuses(t, "a model by a star", "model")
	listed.change = func(r *route.Route) { r.Models = []string{"o3-deep-research"} }
	listed.passes(t, "a model by its name", Told{Model: "o3-deep-research", CountsUsage: true})
	listed.change = func(r *route.Route) { r.Models = []string{"gpt-5*"} }
	listed.refuses(t, "another model", "model")
}
