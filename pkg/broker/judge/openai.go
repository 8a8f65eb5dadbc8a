package judge

import (
	"bytes"
	"slices"
	"strings"
)

// openai is a body of Chat Completions or Responses. The tables are in chat.go and responses.go, what the two have in
// common is here: from the vendor's own types, openai-node 7.57.0, src/resources/responses/responses.ts and
// src/resources/chat/completions/completions.ts.
type openai struct{ *request }

const (
	asAddress     look = iota + 32 // a URL that has its content in itself, alone or as {"url": …}
	asEncoded                      // base64
	asAudio                        // {"data": …}, or base64 alone
	asFile                         // {"file_data": …}
	asRemote                       // what the provider would fetch
	asKept                         // what refers to something that the provider keeps
	asSettings                     // values that name no place, at any depth
	asSchema                       // of JSON
	asChoice                       // of a tool
	asChoices                      // a list of them
	asAllowed                      // {"mode": …, "tools": […]}
	asEnvironment                  // of a tool
	asSearch                       // has the provider search
	asPlugins                      // a list of {"id": …}
	asModels                       // a list of names
	asCalls                        // a list of tools' calls
	asAnnotations                  // of an answer
	asEdit                         // a list of {"type": "compaction"}
	asInput                        // a text, or a list of items
	asScreenshot                   // a part of the content
	asPrediction                   // {"content": …}
)

// openaiCommon are members that any object may have.
var openaiCommon = map[string]look{
	"type":          asPlain,
	"cache_control": asSettings, "copilot_cache_control": asSettings, "prompt_cache_breakpoint": asSettings,
	"internal_chat_message_metadata_passthrough": asInert, // of Codex
}

// openaiParts are the types of content. What names a file of the provider's or an address is judged by its member.
var openaiParts = map[string]rule{
	"text":                only(has{"text": asPlain, "annotations": asAnnotations}),
	"input_text":          only(has{"text": asPlain}),
	"output_text":         only(has{"text": asPlain, "annotations": asInert, "logprobs": asInert}),
	"summary_text":        only(has{"text": asPlain}),
	"reasoning_text":      only(has{"text": asPlain}),
	"refusal":             only(has{"refusal": asPlain}),
	"thinking":            only(has{"thinking": asContent, "closed": asPlain, "signature": asPlain}),
	"image_url":           only(has{"image_url": asAddress}),
	"video_url":           only(has{"video_url": asAddress}), // vLLM's, as the next
	"audio_url":           only(has{"audio_url": asAddress}),
	"document_url":        only(has{"document_url": asAddress, "document_name": asPlain}), // Mistral's
	"input_image":         only(has{"image_url": asAddress, "detail": asPlain, "file_id": asKept}),
	"computer_screenshot": only(has{"image_url": asAddress, "detail": asPlain, "file_id": asKept}),
	"input_audio":         only(has{"input_audio": asAudio, "data": asEncoded, "format": asPlain}),
	"file":                only(has{"file": asFile, "file_id": asKept}),
	"input_file": only(has{
		"file_data": asAddress, "file_url": asRemote, "file_id": asKept, "filename": asPlain, "detail": asPlain}),
}

// openaiTools are the types of tools, and the families of those that the provider runs.
var openaiTools = map[string]string{
	"function": "", "custom": "", "namespace": "", "local_shell": "", "apply_patch": "",
	"computer": "", "computer_use": "", "computer_use_preview": "",
	"tool_search": "", // which searches the list of tools in the request itself

	"web_search":                    "web_search",
	"web_search_2025_08_26":         "web_search",
	"web_search_preview":            "web_search",
	"web_search_preview_2025_03_11": "web_search",
	"file_search":                   "file_search",
	"code_interpreter":              "code_interpreter",
	"image_generation":              "image_generation",
	"mcp":                           "mcp",
	"shell":                         "shell",
	"programmatic_tool_calling":     "programmatic_tool_calling",

	"web_search_premium": "web_search", "document_library": "document_library", "connector": "connector", // Mistral's
	"browser_search": "web_search",                                                                        // Groq's
	"x_search":       "x_search", "collections_search": "file_search", "code_execution": "code_execution", // xAI's
	"builtin_function": "builtin_function", // Kimi's, of which one is $web_search
}

var openaiTool = rule{members: map[string]look{
	"name": asPlain, "description": asPlain, "strict": asPlain, "defer_loading": asPlain, "execution": asPlain,
	"function": asSchema, "custom": asInert, "format": asInert, "tools": asTools,
	"parameters": asSchema, "input_schema": asSchema, "output_schema": asSchema,
	"allowed_callers": asSettings, "environment": asEnvironment,
}}

var (
	openaiAddress = rule{closed: true, members: map[string]look{"url": asAddress, "detail": asPlain, "format": asPlain}}
	openaiAudio   = rule{closed: true, members: map[string]look{"data": asEncoded, "format": asPlain}}
	// openaiAllowed is the choice among some tools, which Chat Completions wraps.
	openaiAllowed = rule{closed: true, members: map[string]look{
		"mode": asPlain, "tools": asChoices, "allowed_tools": asAllowed}}
	openaiFile = rule{closed: true, members: map[string]look{
		"file_data": asAddress, "filename": asPlain, "file_id": asKept, "file_url": asRemote}}
)

// judge judges a body by the fields that it may have.
func (q openai) judge(known map[string]look) *Refusal {
	if refusal := fields(q.request, known); refusal != nil {
		return refusal
	}
	for name, field := range q.root.members() {
		if refusal := q.look(known[string(name)], name, field); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (q openai) fits(v value, what []byte, r rule) *Refusal {
	return q.members(v, what, r, openaiCommon, q.look)
}

// look judges a member. What is null is taken as not there.
func (q openai) look(how look, name []byte, v value) *Refusal {
	if v.none() {
		return nil
	}
	switch how {
	case asPlain:
		if !v.scalar() {
			return refuse("content", "%s is not a plain value", quote(name, 64))
		}
	case asContent:
		return q.list(v, name, v.kind() == text, q.part)
	case asMessages:
		return q.list(v, name, false, q.message)
	case asScreenshot:
		return q.part(v)
	case asPrediction:
		return q.fits(v, name, rule{members: map[string]look{"content": asContent}})
	case asInput:
		return q.list(v, name, v.kind() == text, q.item)
	case asTools:
		return q.list(v, name, false, q.tool)
	case asCalls:
		return q.list(v, name, false, q.call)
	case asAnnotations:
		return q.list(v, name, false, q.annotation)
	case asChoice:
		return q.choice(v)
	case asChoices:
		return q.list(v, name, false, q.choice)
	case asAllowed:
		if kind := v.get("type"); !kind.none() {
			return unknown("tool_choice", kind)
		}
		return q.fits(v, name, openaiAllowed)
	case asEnvironment:
		return q.environment(v)
	case asTarget:
		if _, refusal := q.model(v.get("model")); refusal != nil {
			return refusal
		}
		return q.settings(name, v)
	case asModels:
		return q.list(v, name, false, func(model value) *Refusal { _, refusal := q.model(model); return refusal })
	case asEdit:
		return q.list(v, name, false, q.edit)
	case asSearch:
		if v.kind() != 'f' {
			return q.provided(name, "web_search")
		}
	case asPlugins:
		return q.list(v, name, false, q.plugin)
	case asSettings:
		return q.settings(name, v)
	case asSchema:
		return q.schema(v)
	}
	return q.place(how, name, v)
}

// place judges what can name a place: an address, or something that the provider keeps.
func (q openai) place(how look, name []byte, v value) *Refusal {
	switch how {
	case asAddress:
		if v.kind() == object {
			return q.fits(v, name, openaiAddress)
		}
		if !inline(v.str()) {
			return refuse("content", "%s by an address is not allowed, since the provider would fetch it; one that "+
				"begins with data: has its content in itself", quote(name, 64))
		}
	case asEncoded:
		if v.kind() != text || bytes.IndexByte(v.str(), ':') >= 0 && !inline(v.str()) {
			return refuse("content", "%s is not in base64", quote(name, 64))
		}
	case asAudio:
		if v.kind() == text {
			return q.place(asEncoded, name, v)
		}
		return q.fits(v, name, openaiAudio)
	case asFile:
		return q.fits(v, name, openaiFile)
	case asRemote:
		return refuse("content", "%s is not allowed, since the provider would fetch it", quote(name, 64))
	case asKept:
		if !q.named(name) {
			return refuse("content", "%s refers to what the provider keeps, which can't be judged; "+
				"route %s lets it pass with fields: [%[1]s]", quote(name, 64), q.route.Name)
		}
	}
	return nil
}

func (q openai) part(v value) *Refusal {
	kind := v.get("type").str()
	r, ok := openaiParts[string(kind)]
	if !ok {
		return unknown("content", v.get("type"))
	}
	return q.fits(v, kind, r)
}

// annotation is one of an answer, which the client repeats. OpenRouter keeps files that it has read in some.
func (q openai) annotation(v value) *Refusal {
	if kind := v.get("type"); string(kind.str()) != "url_citation" {
		return unknown("an annotation", kind)
	}
	return nil
}

func (q openai) edit(v value) *Refusal {
	if kind := v.get("type"); string(kind.str()) != "compaction" {
		return unknown("an edit of the context", kind)
	}
	return q.settings(nil, v)
}

// plugin is one of OpenRouter's (OpenRouterTeam/typescript-sdk, src/models/chatrequest.ts).
func (q openai) plugin(v value) *Refusal {
	id := v.get("id").str()
	switch string(id) {
	case "response-healing", "context-compression": // they see the request and the answer alone
		return nil
	case "web":
		return q.provided(id, "web_search")
	case "web-fetch":
		return q.provided(id, "web_fetch")
	}
	return q.provided(id, "")
}

func (q openai) tool(v value) *Refusal {
	kind := v.get("type")
	if kind.none() && v.get("function").kind() == object {
		return q.fits(v, []byte("a tool"), openaiTool)
	}
	if kind.kind() != text {
		return unknown("a tool", kind)
	}
	family, known := openaiTools[string(kind.str())]
	switch {
	case family == "shell" && string(v.get("environment").get("type").str()) == "local":
		return q.fits(v, kind.str(), openaiTool) // the client runs it
	case known && family == "":
		return q.fits(v, kind.str(), openaiTool)
	case q.cached(v, string(kind.str())) && !slices.Contains(q.route.ProviderTools, family):
		family = "web_search_cached"
	}
	return q.provided(kind.str(), family)
}

// cached says whether a search is of OpenAI's index alone. By default it is not.
func (q openai) cached(tool value, kind string) bool {
	return strings.HasSuffix(q.path, "/responses") && (kind == "web_search" || kind == "web_search_2025_08_26") &&
		tool.get("external_web_access").kind() == 'f'
}

// choice says which tool is to be called. Those of the provider are in the list of tools besides, or were no choice.
func (q openai) choice(v value) *Refusal {
	if v.kind() == text {
		return nil
	}
	kind := v.get("type")
	if string(kind.str()) != "allowed_tools" {
		if family, known := openaiTools[string(kind.str())]; known && (family == "" || family == "shell") {
			return q.fits(v, kind.str(), openaiTool)
		} else {
			return q.provided(kind.str(), family)
		}
	}
	return q.fits(v, []byte("tool_choice"), openaiAllowed)
}

// environment is where a tool runs. One that is named by a text is that of a computer that the client shows.
func (q openai) environment(v value) *Refusal {
	if v.kind() == text || string(v.get("type").str()) == "local" {
		return nil
	}
	return q.provided([]byte("environment"), "shell")
}
