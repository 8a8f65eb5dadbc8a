package judge

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

const (
	generatePath = "/v1beta/models/gemini-3.8-flash:generateContent"
	streamPath   = "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
	countPath    = "/v1beta/models/gemini-3.8-flash:countTokens"
)

func generateOf(body string) asked { return asked{route: "gemini", path: generatePath, body: body} }

// geminiCLI is what gemini-cli 0.61 sends, with its tools and some turns.
const geminiCLI = `{"contents":[
	{"role":"user","parts":[{"text":"see https://example.org"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]},
	{"role":"model","parts":[{"text":"hm","thought":true},{"functionCall":{"id":"1","name":"f","args":{"fileData":{"fileUri":"https://example.org"},
		"url":"https://example.org"}},"thoughtSignature":"AA"}]},
	{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{"output":"https://example.org","fileData":{"fileUri":"x"}},
		"parts":[{"inlineData":{"mimeType":"image/png","data":"AA"}}]}}]}],
	"systemInstruction":{"role":"user","parts":[{"text":"You are"}]},
	"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"urlContext":{"type":"string"}}}}]}],
	"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},"safetySettings":[{"category":"a","threshold":"b"}],
	"generationConfig":{"temperature":1,"topP":0.95,"topK":64,"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"HIGH"},
		"responseMimeType":"application/json","responseJsonSchema":{"type":"object","properties":{"fileUri":{}}}}}`

func TestGeneratePass(t *testing.T) {
	pass := Told{Model: "gemini-3.8-flash", CountsUsage: true}
	for name, body := range map[string]string{
		"gemini-cli": geminiCLI,
		"goose": `{"system_instruction":{"parts":{"text":"x"}},"contents":{"role":"user","parts":{"text":"y"}},
			"tools":{"functionDeclarations":[{"name":"f"}]},"generationConfig":{"temperature":0,"maxOutputTokens":1}}`,
		"snake_case": `{"contents":[{"parts":[{"inline_data":{"mime_type":"image/png","data":"AA"}}]}],"tools":[{"function_declarations":[{"name":"f"}]}],
			"generation_config":{"max_output_tokens":1,"thinking_config":{"include_thoughts":true}},"tool_config":{"function_calling_config":{"mode":"ANY"}}}`,
		"the model in both":    `{"model":"models/gemini-3.8-flash","contents":[]}`,
		"the model by itself":  `{"model":"gemini-3.8-flash","contents":[]}`,
		"nulls":                `{"contents":[],"cachedContent":null,"tools":[{"googleSearch":null,"functionDeclarations":[]}],"fileData":null}`,
		"a computer":           `{"contents":[],"tools":[{"computerUse":{"environment":"ENVIRONMENT_BROWSER"}}]}`,
		"results of a session": `{"contents":[{"parts":[{"executableCode":{"language":"PYTHON","code":"1"}},{"codeExecutionResult":{"outcome":"OK"}}]}]}`,
	} {
		generateOf(body).passes(t, name, pass)
		stream := asked{route: "gemini", path: streamPath, body: body}
		stream.passes(t, name, Told{Model: pass.Model, Stream: true, CountsUsage: true})
	}
	for _, body := range []string{
		`{"contents":[{"parts":[{"text":"x"}]}]}`,
		`{"generateContentRequest":` + strings.Replace(geminiCLI, "{", `{"model":"models/gemini-3.8-flash",`, 1) + `}`,
	} {
		asked{route: "gemini", path: countPath, body: body}.passes(t, "countTokens", pass)
	}
}

func TestGenerateRefuseProvidersTools(t *testing.T) {
	frames := map[string]asked{}
	for name, frame := range map[string]string{
		"a list":   `{"contents":[],"tools":[{"functionDeclarations":[]},%s]}`,
		"an item":  `{"contents":[],"tools":[%s]}`,
		"alone":    `{"contents":[],"tools":%s}`,
		"repeated": `{"contents":{"parts":{"text":"x"}},"tools":[%s,%s]}`,
	} {
		frames[name] = generateOf(frame)
	}
	frames["counting"] = asked{route: "gemini", path: countPath, body: `{"contents":[],"tools":[%s]}`}
	frames["inside"] = asked{route: "gemini", path: countPath, body: `{"generateContentRequest":{"model":"models/gemini-3.8-flash","contents":[],"tools":[%s]}}`}
	frames["inside, snake"] = asked{route: "gemini", path: countPath, body: `{"generate_content_request":{"contents":[],"tools":%s}}`}
	for place, a := range frames {
		frame := a.body
		for _, tool := range []string{
			`{"googleSearch":{}}`, `{"google_search":{}}`, `{"googleSearchRetrieval":{}}`, `{"google_search_retrieval":{"dynamicRetrievalConfig":{}}}`,
			`{"urlContext":{}}`, `{"url_context":{}}`, `{"url_Context":{}}`, `{"UrlContext":{}}`, `{"URLCONTEXT":{}}`, `{"urlcontext":{}}`, `{"url__context":{}}`,
			`{"codeExecution":{}}`, `{"code_execution":{}}`, `{"googleMaps":{}}`, `{"fileSearch":{"fileSearchStoreNames":["x"]}}`, `{"file_search":{}}`,
			`{"mcpServers":[{"streamableHttpTransport":{"url":"https://example.org"}}]}`, `{"mcp_servers":[{}]}`, `{"mcpServers":{"name":"x"}}`,
			`{"retrieval":{"externalApi":{"endpoint":"https://example.org"}}}`, `{"enterpriseWebSearch":{}}`, `{"exaAiSearch":{}}`, `{"parallelAiSearch":{}}`,
			`{"toolOf2028":{}}`, `{"functionDeclarations":[],"urlContext":{}}`, `{"function_declarations":[{"name":"f"}],"google_search":{}}`,
			`{"googleSearch":true}`, `{"googleSearch":[]}`, `{"type":"url_context"}`,
		} {
			a.body = strings.ReplaceAll(frame, "%s", tool)
			a.refuses(t, place+" with "+tool, "tool")
		}
	}
}

func TestGenerateRefuse(t *testing.T) {
	for body, what := range map[string]string{
		`{"contents":[{"parts":[{"fileData":{"fileUri":"https://example.org"}}]}]}`:                                             "field",
		`{"contents":[{"parts":[{"file_data":{"file_uri":"https://example.org","mime_type":"image/png"}}]}]}`:                   "field",
		`{"contents":{"parts":{"fileData":{"fileUri":"gs://b/x"}}}}`:                                                            "field",
		`{"contents":[{"parts":[{"text":"x"},{"fileData":{}}]}]}`:                                                               "field",
		`{"contents":[],"systemInstruction":{"parts":[{"fileData":{"fileUri":"https://youtu.be/x"}}]}}`:                         "field",
		`{"contents":[],"system_instruction":{"parts":{"file_data":{"file_uri":"x"}}}}`:                                         "field",
		`{"contents":[{"parts":[{"functionResponse":{"name":"f","parts":[{"fileData":{"fileUri":"https://example.org"}}]}}]}]}`: "field",
		`{"contents":[{"parts":[{"function_response":{"parts":{"file_data":{}}}}]}]}`:                                           "field",
		`{"contents":[{"parts":[{"inlineData":{"data":"AA","fileUri":"https://example.org"}}]}]}`:                               "field",
		`{"contents":[{"parts":[{"inlineData":"https://example.org"}]}]}`:                                                       "content",
		`{"contents":[{"parts":["https://example.org"]}]}`:                                                                      "content",
		`{"contents":"https://example.org"}`:                                                                                    "content",
		`{"contents":[{"fileData":{}}]}`:                                                                                        "field",
		`{"contents":[{"parts":[{"toolCall":{"toolType":"URL_CONTEXT","args":{"urls":["https://example.org"]}}}]}]}`:            "tool",
		`{"contents":[{"parts":[{"tool_response":{"toolType":"URL_CONTEXT"}}]}]}`:                                               "tool",
		`{"contents":[{"parts":[{"partOf2028":{}}]}]}`:                                                                          "field",
		`{"contents":[],"cachedContent":"cachedContents/x"}`:                                                                    "content",
		`{"contents":[],"cached_content":"cachedContents/x"}`:                                                                   "content",
		`{"contents":[],"continuationToken":"x"}`:                                                                               "content",
		`{"contents":[],"routingConfig":{}}`:                                                                                    "field",
		`{"contents":[],"modelSelectionConfig":{}}`:                                                                             "field",
		`{"contents":[],"generationConfig":{"routingConfig":{"manualMode":{"modelName":"x"}}}}`:                                 "field",
		`{"contents":[],"generation_config":{"model_selection_config":{}}}`:                                                     "field",
		`{"contents":[],"generationConfig":{"speechConfig":{"voiceUri":"x"}}}`:                                                  "field",
		`{"contents":[],"generationConfig":{"responseSchema":{"$ref":"https://example.org"}}}`:                                  "content",
		`{"contents":[],"toolConfig":{"retrievalConfig":{"endpoint":"x"}}}`:                                                     "field",
		`{"contents":[],"tools":[],"Tools":[]}`:                                                                                 "field",
		`{"contents":[],"generationConfig":{"topK":1,"top_k":2}}`:                                                               "json",
		`{"contents":[],"systemInstruction":{},"system_instruction":{}}`:                                                        "json",
		`{"contents":[{"parts":[{"inlineData":{},"inline_data":{}}]}]}`:                                                         "json",
		`{"contents":[],"model":"models/gemini-3.1-pro"}`:                                                                       "model",
		`{"contents":[],"model":"tunedModels/gemini-3.8-flash"}`:                                                                "model",
		`{"contents":[],"model":1}`:                                                                                             "model",
		`{"contents":[],"tools":["urlContext"]}`:                                                                                "content",
		`{"contents":[],"generateContentRequest":{"contents":[]}}`:                                                              "field",
		`[]`: "json",
	} {
		generateOf(body).refuses(t, body, what)
	}
	count := asked{route: "gemini", path: countPath}
	for body, what := range map[string]string{
		`{"generateContentRequest":{"model":"models/other","contents":[]}}`:                                            "model",
		`{"generateContentRequest":{"contents":[{"parts":[{"fileData":{}}]}]}}`:                                        "field",
		`{"generateContentRequest":{"cachedContent":"x"}}`:                                                             "content",
		`{"generateContentRequest":{"generateContentRequest":{}}}`:                                                     "field",
		`{"generateContentRequest":[{"contents":[]}]}`:                                                                 "content",
		`{"contents":[{"parts":[{"file_data":{"file_uri":"https://example.org"}}]}]}`:                                  "field",
		`{"generateContentRequest":{"systemInstruction":{"parts":[{"functionResponse":{"parts":[{"fileData":1}]}}]}}}`: "field",
	} {
		count.body = body
		count.refuses(t, body, what)
	}
}

func TestGenerateWords(t *testing.T) {
	search := generateOf(`{"contents":[],"tools":[{"google_search":{}}]}`)
	pass := Told{Model: "gemini-3.8-flash", CountsUsage: true}
	search.change = allow("google_search")
	search.passes(t, "google_search", pass)
	search.body = `{"contents":[{"parts":[{"toolCall":{"toolType":"GOOGLE_SEARCH_WEB"}}]}],"tools":[{"google_search":{}}]}`
	search.passes(t, "what it has found", pass)
	search.body = `{"contents":[],"tools":[{"google_search":{},"url_context":{}}]}`
	search.refuses(t, "and another", "tool")
	search.body = `{"contents":[],"cached_content":"x","fieldOf2028":{}}`
	search.change = func(r *route.Route) { r.Fields = []string{"cachedContent", "fieldOf2028"} }
	search.passes(t, "fields", pass)
	search.change = func(r *route.Route) { r.Models = []string{"gemini-3.8-*"} }
	search.body = `{"contents":[]}`
	search.passes(t, "on the list", pass)
	search.change = func(r *route.Route) { r.Models = []string{"gemini-3.1-*"} }
	search.refuses(t, "not on the list", "model")
}

func TestCamel(t *testing.T) {
	for name, want := range map[string]string{
		"url_context": "urlContext", "urlContext": "urlContext", "a": "a", "a_b_c": "aBC", "top_k": "topK", "x_1": "x1",
		"url_Context": "url_Context", "_a": "_a", "a_": "a_", "a__b": "a__b", "_": "_", "": "", "aB_c": "aB_c",
	} {
		if got := camel([]byte(name)); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
