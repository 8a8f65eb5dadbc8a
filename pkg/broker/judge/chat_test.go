package judge

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func chatOf(body string) asked {
	return asked{route: "openai", path: "/v1/chat/completions", body: body}
}

// chatTurns are messages of each kind that clients send, with a place for more fields.
const chatTurns = `{"model":"m","stream":true,"messages":[
	{"role":"system","content":"You are","cache_control":{"type":"ephemeral"}},
	{"role":"developer","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]},
	{"role":"user","name":"u","content":[{"type":"text","text":"see https://example.org"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA","detail":"auto"}},
		{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AA"}},{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]},
	{"role":"assistant","content":null,"reasoning_content":"thought","reasoning_details":[{"type":"reasoning.text","text":"https://example.org"}],
		"tool_calls":[{"id":"c","index":0,"type":"function","function":{"name":"bash","arguments":"{\"url\":\"https://example.org\"}"}}],"refusal":null,"annotations":[]},
	{"role":"tool","tool_call_id":"c","name":"bash","content":"https://example.org"},
	{"role":"tool","tool_call_id":"d","content":[{"type":"text","text":"https://example.org"},{"type":"image_url","image_url":"data:image/png;base64,AA"}]},
	{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"refusal","refusal":"b"}],"annotations":[{"type":"url_citation","url_citation":{"url":"https://example.org"}}]}]
	%s}`

func TestChatPass(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		counts bool
	}{
		"qwen": {`,"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":
			{"type":"object","properties":{"image_url":{"type":"string"}}}}}],"max_tokens":1,"temperature":0,"top_p":1,
			"metadata":{"sessionId":"https://example.org","promptId":"p"}`, true},
		"copilot": {`,"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"f","parameters":{}},"copilot_cache_control":{"type":"ephemeral"}}],
			"tool_choice":"auto","parallel_tool_calls":true,"max_completion_tokens":1,"reasoning_effort":"high","user":"u"`, true},
		"goose":      {`,"stream_options":{"include_usage":true},"tools":[],"temperature":0.1`, true},
		"aider":      {`,"temperature":0,"stop":null,"n":1`, false},
		"no usage":   {`,"stream_options":{"include_usage":false}`, false},
		"opencode":   {`,"usage":{"include":true},"reasoning":{"effort":"high","max_tokens":1}`, false},
		"a choice":   {`,"tool_choice":{"type":"function","function":{"name":"f"}},"functions":[{"name":"f","parameters":{}}],"function_call":{"name":"f"}`, false},
		"of allowed": {`,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}`, false},
		"a schema":   {`,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"properties":{"url":{"$ref":"#/$defs/a"}}}}},"prediction":{"type":"content","content":"x"}`, false},
		"no search":  {`,"enable_search":false,"web_search_options":null,"plugins":[{"id":"response-healing"}],"models":["n"]`, false},
		"no type":    {`,"tools":[{"function":{"name":"f","parameters":{}}},{"type":"custom","custom":{"name":"x","format":{"type":"text"}}}]`, false},
		"servers of one's own": {`,"top_k":1,"min_p":0,"repetition_penalty":1,"chat_template_kwargs":{"enable_thinking":false},"keep_alive":"5m","options":{"num_ctx":1},
			"think":true`, false},
	} {
		chatOf(with(chatTurns, c.fields)).passes(t, name, Told{Model: "m", Stream: true, CountsUsage: c.counts})
	}
	chatOf(`{"model":"m","messages":[]}`).passes(t, "no stream", Told{Model: "m", CountsUsage: true})
	asked{route: "mistral", path: "/v1/chat/completions", body: `{"model":"m","stream":true,"messages":[{"role":"assistant","prefix":true,
		"content":[{"type":"thinking","thinking":[{"type":"text","text":"x"}]}]}],"safe_prompt":true,"random_seed":1}`}.
		passes(t, "mistral", Told{Model: "m", Stream: true, CountsUsage: true})
}

func TestChatRefusesProvidersTools(t *testing.T) {
	frames := []string{
		`{"model":"m","messages":[],"tools":[%s]}`,
		`{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f"}},%s]}`,
	}
	own := []string{
		`{"type":"web_search"}`, `{"type":"web_search_premium"}`, `{"type":"document_library","library_ids":["l"]}`, `{"type":"connector","connector_id":"c"}`,
		`{"type":"browser_search"}`, `{"type":"builtin_function","function":{"name":"$web_search"}}`, `{"type":"openrouter:web_fetch"}`,
		`{"type":"openrouter:mcp","parameters":{}}`, `{"type":"x_search"}`, `{"type":"live_search"}`,
	}
	for _, frame := range frames {
		for _, tool := range append(own, providersTools...) {
			chatOf(with(frame, tool)).refuses(t, tool, "tool")
		}
	}
	cached := chatOf(with(frames[0], `{"type":"web_search","external_web_access":false}`))
	cached.change = allow("web_search_cached") // of which Chat Completions knows nothing
	cached.refuses(t, "cached", "tool")
}

func TestChatRefusesWhatIsFetched(t *testing.T) {
	for place, frame := range map[string]string{
		"image_url":        `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%s}}]}]}`,
		"image_url, text":  `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":%s}]}]}`,
		"of a tool":        `{"model":"m","messages":[{"role":"tool","tool_call_id":"c","content":[{"type":"image_url","image_url":%s}]}]}`,
		"video_url":        `{"model":"m","messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":%s}}]}]}`,
		"audio_url":        `{"model":"m","messages":[{"role":"user","content":[{"type":"audio_url","audio_url":%s}]}]}`,
		"document_url":     `{"model":"m","messages":[{"role":"user","content":[{"type":"document_url","document_url":%s}]}]}`,
		"file":             `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a","file_data":%s}}]}]}`,
		"thinking":         `{"model":"m","messages":[{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"image_url","image_url":%s}]}]}]}`,
		"images":           `{"model":"m","messages":[{"role":"assistant","content":"","images":[{"type":"image_url","image_url":%s}]}]}`,
		"prediction":       `{"model":"m","messages":[],"prediction":{"type":"content","content":[{"type":"image_url","image_url":%s}]}}`,
		"input_image":      `{"model":"m","messages":[{"role":"user","content":[{"type":"input_image","image_url":%s}]}]}`,
		"a file by itself": `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":%s}]}]}`,
	} {
		for _, address := range addresses {
			if place == "a file by itself" && address == `{"url":"https://example.org"}` {
				continue // which is no place of its own
			}
			chatOf(with(frame, address)).refuses(t, place+" with "+address, "")
		}
	}
	for _, audio := range []string{`"https://example.org/a.wav"`, `{"data":"https://example.org"}`, `{"data":"AA","url":"https://example.org"}`, `["AA"]`} {
		chatOf(with(`{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":%s}]}]}`, audio)).refuses(t, audio, "")
	}
}

func TestChatRefusesFields(t *testing.T) {
	for field, what := range map[string]string{
		`"web_search_options":{}`: "tool", `"web_search_options":{"search_context_size":"high"}`: "tool", `"enable_search":true`: "tool",
		`"search_parameters":{"mode":"on","sources":[{"type":"rss","links":["https://example.org"]}]}`: "tool",
		`"plugins":[{"id":"web"}]`: "tool", `"plugins":[{"id":"web-fetch"}]`: "tool", `"plugins":[{"id":"file-parser"}]`: "tool",
		`"plugins":[{"id":"fusion"}]`: "tool", `"plugins":[{}]`: "tool", `"plugins":{"id":"web"}`: "content",
		`"data_sources":[{"type":"azure_search","parameters":{"endpoint":"https://example.org"}}]`: "field",
		`"documents":[{"source":{"type":"text"}}]`:                                                 "field", `"search_settings":{"include_images":true}`: "field",
		`"include_domains":["example.org"]`: "field", `"compound_custom":{"tools":{}}`: "field", `"guardrails":[]`: "field",
		`"provider":{"order":["x"]}`: "field", `"route":"fallback"`: "field", `"preset":"x"`: "field", `"fallbacks":["x"]`: "field",
		`"api_base":"https://example.org"`: "field", `"base_url":"https://example.org"`: "field", `"api_key":"x"`: "field", `"user_config":{}`: "field",
		`"extra_body":{"tools":[]}`: "field", `"mock_response":"x"`: "field", `"custom_llm_provider":"x"`: "field", `"mcp_servers":[]`: "field",
		`"chat_template":"x"`: "field", `"mm_processor_kwargs":{}`: "field", `"deferred":true`: "field", `"search_mode":"web"`: "field",
		`"Messages":[]`: "field", `"web_Search_Options":{}`: "field", `"agent_id":"x"`: "field", `"conversation":"x"`: "field",
		`"models":["a:online"]`: "model", `"models":"a"`: "content", `"moderation":{"model":["x"]}`: "model",
		`"reasoning":{"url":"x"}`: "field", `"chat_template_kwargs":{"documents":[{"text":"https://example.org"}]}`: "field",
		`"audio":{"voice":{"id":"x","server_url":"x"}}`: "field", `"stream_options":{"include_usage":true,"endpoint":"x"}`: "field",
		`"response_format":{"type":"json_schema","json_schema":{"schema":{"$ref":"https://example.org"}}}`:     "content",
		`"tools":[{"type":"function","function":{"name":"f","parameters":{"$dynamicRef":"//example.org"}}}]`:   "content",
		`"tools":[{"type":"function","Type":"web_search","function":{"name":"f"}}]`:                            "field",
		`"tools":[{"type":"function","function":{"name":"f"},"web_search":{}}]`:                                "field",
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[{"type":"mcp","server_label":"x"}]}}`: "tool",
		`"tool_choice":{"type":"allowed_tools","web":{}}`:                                                      "field",
	} {
		chatOf(`{"model":"m","messages":[],`+field+`}`).refuses(t, field, what)
	}
	for message, what := range map[string]string{
		`{"content":"x"}`: "content", `"x"`: "content", `{"role":"user","content":{"type":"text","text":"x"}}`: "content",
		`{"role":"assistant","audio":{"id":"audio_1"}}`: "content", `{"role":"assistant","annotations":[{"type":"file","file":{"hash":"x"}}]}`: "content",
		`{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}`:              "content",
		`{"role":"user","content":[{"type":"file","file_id":"file-1"}]}`:                       "content",
		`{"role":"user","content":[{"type":"reference","reference_ids":[1]}]}`:                 "content",
		`{"role":"user","content":[{"type":"text","text":"x","Type":"image_url"}]}`:            "field",
		`{"role":"user","content":"x","file_url":"https://example.org"}`:                       "field",
		`{"role":"user","content":"x","Content":"y"}`:                                          "field",
		`{"role":"user","content":"x","attachments":[{}]}`:                                     "field",
		`{"role":"assistant","tool_calls":[{"id":"c","function":{},"mcp":{"server_url":""}}]}`: "field",
		`{"role":"assistant","tool_calls":{"id":"c"}}`:                                         "content",
	} {
		chatOf(with(`{"model":"m","messages":[%s]}`, message)).refuses(t, message, what)
	}
}

func TestModelsThatAreMore(t *testing.T) {
	for _, model := range []string{
		"gpt-4o-search-preview", "gpt-4o-mini-search-preview-2025-03-11", "gpt-5-search-api", "o4-mini-deep-research", "GPT-4O-SEARCH-PREVIEW",
		"openai/gpt-5:online", "openai/gpt-5:Online", "@preset/x", "openai/gpt-5@preset/x", "openrouter/fusion", "compound", "compound-beta-mini",
		"groq/compound", "groq/compound-mini", "sonar-pro", "perplexity/sonar", "ag:1:2", "gpt-oss:cloud", "gpt-oss:120b-cloud", "x/y:20b:CLOUD", "huggingface://a/b", "https://example.org/m.yaml",
	} {
		a := chatOf(with(`{"model":"%s","messages":[]}`, model))
		a.refuses(t, model, "model")
		a.change = func(r *route.Route) { r.Models = []string{"*"} }
		a.refuses(t, model, "model")
		a.change = func(r *route.Route) { r.Models = []string{"*", model} }
		a.passes(t, model, Told{Model: model, CountsUsage: true})
	}
	for _, model := range []string{"gpt-5.4-nano", "anthropic/claude-sonnet-5-5", "llama3.2:latest", "mistral-large-latest", "/models/x", "hf.co/a/b:Q4_K_M"} {
		chatOf(with(`{"model":"%s","messages":[]}`, model)).passes(t, model, Told{Model: model, CountsUsage: true})
	}
	for _, model := range []string{`""`, `" gpt-5"`, `"gpt-5 "`, `"gpt\u20115"`, `"gpt\n5"`, `null`, `1`, `["gpt-5"]`, `{"name":"gpt-5"}`} {
		chatOf(with(`{"model":%s,"messages":[]}`, model)).refuses(t, model, "model")
	}
}

// TestAzureDeployments are judged by what the path says, since the body says what is not looked at.
func TestAzureDeployments(t *testing.T) {
	a := asked{route: "azure-openai", path: "/openai/deployments/dep-1/chat/completions?api-version=2025-04-01", body: `{"messages":[]}`}
	a.passes(t, "no model", Told{Model: "dep-1", CountsUsage: true})
	a.change = func(r *route.Route) { r.Models = []string{"gpt-*"} }
	a.refuses(t, "not on the list", "model")
	a.body = `{"model":"gpt-5","messages":[]}`
	a.refuses(t, "a model on the list, and a deployment that is not", "model")
	a.change = func(r *route.Route) { r.Models = []string{"dep-*"} }
	a.refuses(t, "a deployment on the list, and a model that is not", "model")
}
