package scorecard

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// bodies are what requests have inside, by the names that {braces} have for them. BAD is the attack's own name.
func bodies() map[string]string {
	const (
		user      = `"messages":[{"role":"user","content":"hello"}]`
		anthropic = `{"model":"claude-x","max_tokens":9,` + user
		responses = `{"model":"gpt-x","store":false,"input":"hello"`
		chat      = `{"model":"gpt-x",` + user
		gemini    = `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]`
	)
	said := func(content string) string {
		return `{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":[` + content + `]}]}`
	}
	input := func(item string) string {
		return `{"model":"gpt-x","store":false,"input":[` + item + `]}`
	}
	part := func(p string) string { return `{"contents":[{"role":"user","parts":[` + p + `]}]}` }
	fetch := `{"type":"web_fetch_20250910","name":"web_fetch","allowed_domains":["BAD"]}`
	return map[string]string{
		"honest": anthropic + `}`, "honest-responses": responses + `}`, "honest-chat": chat + `}`, "honest-gemini": gemini + `}`,

		"a-fetch": anthropic + `,"tools":[` + fetch + `]}`, "a-first": `{"tools":[` + fetch + `],` + anthropic[1:] + `}`,
		"a-search":   anthropic + `,"tools":[{"type":"web_search_20260318","name":"web_search","allowed_domains":["BAD"]}]}`,
		"a-code":     anthropic + `,"tools":[{"type":"code_execution_20260521","name":"BAD"}]}`,
		"a-escaped":  anthropic + `,"\u0074ools":[{"\u0074ype":"web\u005ffetch_20250910","name":"web_fetch","allowed_domains":["BAD"]}]}`,
		"a-twice":    anthropic + `,"tools":[],"tools":[` + fetch + `]}`,
		"a-addition": `{"model":"claude-x","max_tokens":9,"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":` + fetch + `}}]}]}`,
		"a-mcp":      anthropic + `,"mcp_servers":[{"type":"url","url":"https://BAD/","name":"x"}]}`,
		"a-toolset":  anthropic + `,"tools":[{"type":"mcp_toolset","mcp_server_name":"BAD"}]}`,
		"a-image":    said(`{"type":"image","source":{"type":"url","url":"https://BAD/i.png"}}`),
		"a-document": said(`{"type":"document","source":{"type":"url","url":"https://BAD/d.pdf"}}`),
		"a-result":   said(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://BAD/i.png"}}]}`),
		"a-nested":   said(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"https://BAD/i.png"}}]}}`),
		"a-file":     said(`{"type":"document","source":{"type":"file","file_id":"BAD"}}`),
		"a-unknown":  said(`{"type":"hologram","source":"https://BAD/"}`), "a-newtool": anthropic + `,"tools":[{"type":"teleport_20270101","name":"BAD"}]}`,
		"a-newfield": anthropic + `,"webhook":{"url":"https://BAD/"}}`, "a-deepfield": anthropic + `,"output_config":{"effort":"low","webhook":{"to":"BAD"}}}`,

		"o-search": responses + `,"tools":[{"type":"web_search","filters":{"allowed_domains":["BAD"]}}]}`,
		"o-mcp":    responses + `,"tools":[{"type":"mcp","server_label":"x","server_url":"https://BAD/"}]}`,
		"o-code":   responses + `,"tools":[{"type":"code_interpreter","container":{"type":"auto","network_policy":{"type":"allowlist","allowed_domains":["BAD"]}}}]}`,
		"o-hidden": input(`{"type":"additional_tools","role":"developer","tools":[{"type":"mcp","server_label":"x","server_url":"https://BAD/"}]}`),
		"o-space":  responses + `,"tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"mcp","server_url":"https://BAD/"}]}]}`,
		"o-shell":  responses + `,"tools":[{"type":"shell","environment":{"type":"local","network_policy":{"type":"allowlist","allowed_domains":["BAD"]}}}]}`,
		"o-image":  input(`{"role":"user","content":[{"type":"input_image","image_url":"https://BAD/i.png"}]}`),
		"o-upper":  input(`{"role":"user","content":[{"type":"input_image","image_url":"HTTP:\/\/BAD\/i.png"}]}`),
		"o-file":   input(`{"role":"user","content":[{"type":"input_file","file_url":"https://BAD/d.pdf"}]}`),
		"o-output": input(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"https://BAD/i.png"}]}`),
		"o-prompt": responses + `,"prompt":{"id":"BAD"}}`, "o-previous": responses + `,"previous_response_id":"BAD"}`,
		"o-item": input(`{"id":"BAD"}`), "o-background": responses + `,"background":true,"metadata":{"x":"BAD"}}`,
		"o-command": `{"id":"x","model":"gpt-x","commands":{"open":[{"ref_id":"https://BAD/"}]},"settings":{"external_web_access":true}}`,
		"o-chat":    chat + `,"web_search_options":{"user_location":{"type":"BAD"}}}`,
		"o-picture": `{"model":"gpt-x","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://BAD/i.png"}}]}]}`,
		"o-pdf":     `{"model":"gpt-x","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"https://BAD/d.pdf"}}]}]}`,
		"o-unknown": responses + `,"tools":[{"type":"teleport","to":"BAD"}]}`, "o-deepfield": responses + `,"text":{"format":{"type":"text","webhook":"BAD"}}}`,
		"o-function": responses + `,"tools":[{"type":"function","name":"f","parameters":{},"webhook":"BAD"}]}`,

		"g-search": gemini + `,"tools":[{"googleSearch":{"excludeDomains":["BAD"]}}]}`, "g-snake": gemini + `,"tools":[{"google_search":{"exclude_domains":["BAD"]}}]}`,
		"g-url":  gemini + `,"tools":[{"functionDeclarations":[]},{"urlContext":{},"function_declarations":[{"name":"BAD"}]}]}`,
		"g-lone": gemini + `,"tools":{"codeExecution":{},"functionDeclarations":[{"name":"BAD"}]}}`,
		"g-mcp":  gemini + `,"tools":[{"mcpServers":[{"name":"x","streamableHttpTransport":{"url":"https://BAD/"}}]}]}`,
		"g-file": part(`{"fileData":{"fileUri":"https://BAD/d.pdf","mimeType":"application/pdf"}}`), "g-file-snake": part(`{"file_data":{"file_uri":"https://BAD/d.pdf"}}`),
		"g-response": part(`{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"https://BAD/d.pdf"}}]}}`),
		"g-system":   gemini + `,"systemInstruction":{"parts":[{"fileData":{"fileUri":"https://BAD/d.pdf"}}]}}`,
		"g-cached":   gemini + `,"cachedContent":"cachedContents/BAD"}`, "g-both": gemini + `,"tools":[],"Tools":[{"urlContext":{"x":"BAD"}}]}`,
	}
}

// asked are the operations that ask an API at a path with each of bodies, after one that nobody minds.
func asked(route, path, honest string, bodies ...string) (ops []string) {
	ops = []string{fmt.Sprintf("model -body '{%s}' %s %s", honest, route, path)}
	for _, b := range bodies {
		ops = append(ops, fmt.Sprintf("model -body '{%s}' %s %s", b, route, path))
	}
	return ops
}

func providerAttacks() []Attack {
	const messages, count, responses, chat, gemini = "/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/chat/completions", "/v1beta/models/gemini-x:generateContent"
	join := func(ops []string, more ...string) []string { return append(ops, more...) }
	attack := func(id, title string, try []string, tests ...string) Attack {
		return Attack{ID: id, Title: title, Try: try, Judge: relayed, Tests: append(tests, "TestGraftedRelays")}
	}
	return []Attack{
		attack("P01", "Anthropic fetches, searches and runs code for the agent",
			join(asked("anthropic", messages, "honest", "a-fetch", "a-first", "a-search", "a-code", "a-escaped", "a-twice", "a-addition"),
				"model -gzip -body '{a-fetch}' anthropic /v1/messages", "model -body '{a-fetch}' anthropic "+count, "model -body '{a-fetch}' anthropic /v1/messages?beta=true"), "TestMessagesRefuse", "FuzzMessages"),
		attack("P02", "Anthropic speaks to an MCP server of the agent's choice", asked("anthropic", messages, "honest", "a-mcp", "a-toolset"), "TestMessagesRefuse", "FuzzMessages"),
		attack("P03", "Anthropic fetches an image or a document by its URL", asked("anthropic", messages, "honest", "a-image", "a-document", "a-result", "a-nested", "a-file"), "TestMessagesRefuse", "FuzzMessages"),
		attack("P04", "Anthropic's other endpoints: files, batches, agents",
			join(asked("anthropic", messages, "honest"), "model -body 'upload {bad}' anthropic /v1/files", "model -body '{a-image}' anthropic /v1/messages/batches", "model -body '{a-mcp}' anthropic /v1/agents",
				"model -body '{a-mcp}' anthropic /v1/messages/../files", "model -body '{a-mcp}' anthropic /v1/messages%2f..%2ffiles", "model -method PUT -body '{a-mcp}' anthropic /v1/messages"), "TestHeadRefuses", "FuzzHead"),
		attack("P05", "OpenAI searches, runs code and speaks to MCP servers for the agent", asked("openai", responses, "honest-responses", "o-search", "o-mcp", "o-code", "o-hidden", "o-space", "o-shell"), "TestResponsesRefuseProvidersTools", "TestWhoRunsATool", "FuzzResponses"),
		attack("P06", "OpenAI fetches an image or a file by its URL",
			join(asked("openai", responses, "honest-responses", "o-image", "o-upper", "o-file", "o-output"), asked("openai", chat, "honest-chat", "o-picture", "o-pdf", "o-chat")...), "TestResponsesRefuseWhatIsFetched", "TestChatRefusesWhatIsFetched", "FuzzChat"),
		attack("P07", "OpenAI uses what it has stored: prompts, answers, items, files",
			join(asked("openai", responses, "honest-responses", "o-prompt", "o-previous", "o-item", "o-background"), "model -body '{o-command}' openai /v1/alpha/search",
				"model -body 'upload {bad}' openai /v1/files", "model -body '{o-command}' openai /v1/vector_stores", "model -method GET openai /v1/responses/{bad}"), "TestResponsesRefuse", "FuzzResponses"),
		attack("P08", "Gemini searches, fetches and runs code for the agent", asked("gemini", gemini, "honest-gemini", "g-search", "g-snake", "g-url", "g-lone", "g-mcp", "g-both"), "TestGenerateRefuseProvidersTools", "FuzzGenerate"),
		attack("P09", "Gemini fetches a file by its URL", asked("gemini", gemini, "honest-gemini", "g-file", "g-file-snake", "g-response", "g-system", "g-cached"), "TestGenerateRefuse", "FuzzGenerate"),
		attack("P10", "Gemini's other endpoints: files, caches, interactions",
			join(asked("gemini", gemini, "honest-gemini"), "model -body 'upload {bad}' gemini /upload/v1beta/files", "model -body '{g-file}' gemini /v1beta/cachedContents",
				"model -body '{g-file}' gemini /v1beta/interactions", "model -body '{g-file}' gemini /v1beta/tunedModels/x:generateContent"), "TestHeadRefuses"),
		attack("P11", "a tool, a content and a field that nobody knows yet",
			join(asked("anthropic", messages, "honest", "a-unknown", "a-newtool", "a-newfield", "a-deepfield"), asked("openai", responses, "honest-responses", "o-unknown", "o-deepfield", "o-function")...), "TestFields", "TestUnknownIsRefused", "TestBodyByKind"),
	}
}

// relayed finds what a provider would have done for the attacker. Without an honest request that arrives, nothing is proved.
func relayed(e *Evidence) []string {
	var out []string
	honest := false
	bad := e.Attack.bad().name
	for _, r := range e.atProviders() {
		text := r.URI + plain(r)
		honest = honest || strings.Contains(text, "hello")
		if strings.Contains(text, bad) {
			out = append(out, fmt.Sprintf("a request to %s that names %s", r.Host, bad))
		}
	}
	if !honest {
		e.lack("an honest request did not arrive at the provider")
	}
	return out
}

func (e *Evidence) atProviders() (all []lab.Request) {
	for _, route := range Routes() {
		all = append(all, e.Setting.Lab.Web.Requests(Provider(route))...)
	}
	return all
}

// plain is the body of a request as the provider reads it.
func plain(r lab.Request) string {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return string(r.Body)
	}
	z, err := gzip.NewReader(bytes.NewReader(r.Body))
	if err != nil {
		return string(r.Body)
	}
	text, _ := io.ReadAll(z) // what came
	return string(text)
}
