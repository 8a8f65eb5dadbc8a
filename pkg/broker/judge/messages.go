package judge

// The rules of Anthropic's Messages API, from the vendor's own types (anthropic-sdk-typescript 1.12.0,
// src/resources/beta/messages/messages.ts) and from what Claude Code 2.1.330 sends.

// look is how a member of an object is judged.
type look uint8

const (
	asInert      look = iota + 1 // nothing in it is fetched, run or kept
	asPlain                      // a text, a number, true, false or null
	asContent                    // a text, or a list of blocks
	asSource                     // of an image or a document
	asFetched                    // the content of a web_fetch_tool_result: a document, or an error
	asServed                     // the name of a tool that the provider has run
	asModel                      // the name of one
	asTarget                     // {"model": …}
	asMessages                   // a list of {"role": …, "content": …}
	asTools                      // a list of tools
	asManagement                 // {"edits": […]}
	asEdits                      // a list of edits of the context
	asAddition                   // a tool, or a reference to one
	asAdditions                  // a list of blocks that add or remove a tool
	asFallbacks                  // "default", or a list of {"model": …}
	asServers                    // a list of MCP servers
	asContainer                  // of the provider's, by its name or as {"id": …}
	asSummarize                  // {"type": "summarize", …}
)

// rule says what an object may have. Members that it doesn't name pass if they are no objects and lists, and not at all
// if it is closed.
type rule struct {
	family  string // of the provider's tools that it belongs to
	closed  bool
	members map[string]look
}

// has are the members that an object may have, and only those that it has no others than.
type has = map[string]look

func only(members has) rule { return rule{closed: true, members: members} }

var anthropicFields = map[string]look{
	"model": asPlain, "stream": asPlain,
	"messages": asMessages, "system": asContent, "tools": asTools,
	"mcp_servers": asServers, "container": asContainer, "fallbacks": asFallbacks, "context_management": asManagement,
	"compaction": asSummarize,

	"max_tokens": asPlain, "temperature": asPlain, "top_p": asPlain, "top_k": asPlain,
	"inference_geo": asPlain, "service_tier": asPlain, "speed": asPlain,
	"cache_control": asSettings, "diagnostics": asSettings, "metadata": asInert, "stop_sequences": asInert,
	"output_config": asSchema, "output_format": asSchema, "thinking": asSettings, "tool_choice": asSettings,
	"fallback_credit_token": asSettings,

	"safeguards": asInert, "context_hint": asInert, // Claude Code's own
}

// anthropicCommon are members that any object may have.
var anthropicCommon = map[string]look{
	"type": asPlain, "cache_control": asSettings, "caller": asSettings,
	"citations": asInert, // where a text was found, which is not asked again
}

var (
	anthropicMessage = rule{members: map[string]look{
		"role": asPlain, "content": asContent, "clear_at": asPlain, "output_config": asSettings}}
	anthropicManagement = rule{members: map[string]look{"edits": asEdits}}
	anthropicSummary    = rule{closed: true, members: map[string]look{"instructions": asPlain}}
	anthropicContainer  = rule{closed: true, members: map[string]look{"id": asPlain}}
	anthropicFallback   = rule{closed: true, members: map[string]look{
		"model": asModel, "max_tokens": asPlain, "speed": asPlain, "output_config": asSchema, "thinking": asSettings}}
)

// anthropicBlocks are the types of content that may pass. Left out is container_upload: it names a file that the
// provider keeps.
var anthropicBlocks = map[string]rule{
	"text":              {members: map[string]look{"text": asPlain}},
	"thinking":          {members: map[string]look{"thinking": asPlain, "signature": asPlain}},
	"redacted_thinking": {members: map[string]look{"data": asPlain}},
	"image":             {closed: true, members: map[string]look{"source": asSource, "transformations": asSettings}},
	"document":          {closed: true, members: map[string]look{"source": asSource, "title": asPlain, "context": asPlain}},
	"search_result":     {members: map[string]look{"source": asPlain, "title": asPlain, "content": asContent}},

	"tool_use": {members: map[string]look{
		"id": asPlain, "name": asPlain, "input": asInert, "toolset_name": asPlain}},
	"tool_result": {members: map[string]look{
		"tool_use_id": asPlain, "is_error": asPlain, "content": asContent, "toolset_name": asPlain}},
	"tool_reference": {members: map[string]look{"tool_name": asPlain}},
	"browser_state":  {members: map[string]look{"tabs": asInert, "state_changes": asInert}},
	"tool_addition":  {members: map[string]look{"tool": asAddition}},
	"tool_removal":   {members: map[string]look{"tool": asAddition}},
	"compaction": {members: map[string]look{
		"content": asPlain, "encrypted_content": asPlain, "signature": asPlain, "tool_changes": asAdditions}},
	"fallback": {members: map[string]look{"from": asInert, "to": asTarget, "trigger": asInert}},

	"server_tool_use":         {members: map[string]look{"id": asPlain, "name": asServed, "input": asInert}},
	"tool_search_tool_result": {members: map[string]look{"tool_use_id": asPlain, "content": asInert}},
	"web_search_tool_result":  {"web_search", false, map[string]look{"tool_use_id": asPlain, "content": asInert}},
	"web_fetch_tool_result":   {"web_fetch", false, map[string]look{"tool_use_id": asPlain, "content": asFetched}},
	"advisor_tool_result":     {"advisor", false, map[string]look{"tool_use_id": asPlain, "content": asInert}},

	"code_execution_tool_result":             {"code_execution", false, map[string]look{"content": asInert}},
	"bash_code_execution_tool_result":        {"code_execution", false, map[string]look{"content": asInert}},
	"text_editor_code_execution_tool_result": {"code_execution", false, map[string]look{"content": asInert}},

	"mcp_tool_use":     {"mcp", false, map[string]look{"server_name": asPlain, "input": asInert}},
	"mcp_tool_result":  {"mcp", false, map[string]look{"content": asContent}},
	"mcp_tool_listing": {"mcp", false, map[string]look{"mcp_server_name": asPlain, "tools": asInert}},
}

// anthropicSources are the types of a source that has its content in itself. Left out are url and file.
var anthropicSources = map[string]rule{
	"base64":  {closed: true, members: map[string]look{"media_type": asPlain, "data": asPlain}},
	"text":    {closed: true, members: map[string]look{"media_type": asPlain, "data": asPlain}},
	"content": {closed: true, members: map[string]look{"content": asContent}},
}

// anthropicTools are the types of tools, and the families of those that the provider runs. Those without one are run by
// the client, or search the list of tools in the request itself.
var anthropicTools = map[string]string{
	"custom": "", "memory_20250818": "",
	"bash_20241022": "", "bash_20250124": "",
	"text_editor_20241022": "", "text_editor_20250124": "", "text_editor_20250429": "", "text_editor_20250728": "",
	"computer_20241022": "", "computer_20250124": "", "computer_20251124": "",
	"computer_toolset_20260801": "", "browser_toolset_20260801": "",
	"tool_search_tool_regex": "", "tool_search_tool_regex_20251119": "",
	"tool_search_tool_bm25": "", "tool_search_tool_bm25_20251119": "",

	"web_search_20250305":     "web_search",
	"web_search_20260209":     "web_search",
	"web_search_20260318":     "web_search",
	"web_fetch_20250910":      "web_fetch",
	"web_fetch_20260209":      "web_fetch",
	"web_fetch_20260309":      "web_fetch",
	"web_fetch_20260318":      "web_fetch",
	"code_execution_20250522": "code_execution",
	"code_execution_20250825": "code_execution",
	"code_execution_20260120": "code_execution",
	"code_execution_20260521": "code_execution",
	"advisor_20260301":        "advisor",
	"mcp_toolset":             "mcp",
}

var anthropicTool = rule{members: map[string]look{
	"name": asPlain, "description": asPlain, "input_schema": asSchema, "input_examples": asInert, "strict": asPlain,
	"defer_loading": asPlain, "eager_input_streaming": asPlain, "allowed_callers": asSettings, "configs": asSettings,

	// Of tools that the provider runs. The tools of mcp_toolset are names and schemas.
	"model": asModel, "caching": asSettings, "user_location": asInert, "allowed_domains": asInert,
	"blocked_domains": asInert, "url_sources": asInert, "mcp_server_name": asPlain, "default_config": asSettings,
	"tools": asInert,
}}

// anthropicServed are the names in server_tool_use, with their families.
var anthropicServed = map[string]string{
	"tool_search_tool_regex": "", "tool_search_tool_bm25": "",
	"web_search": "web_search", "web_fetch": "web_fetch", "advisor": "advisor", "code_execution": "code_execution",
	"bash_code_execution": "code_execution", "text_editor_code_execution": "code_execution",
}

// anthropicReferences are the types of what tool_addition and tool_removal have, with their families.
var anthropicReferences = map[string]string{
	"tool_reference": "", "mcp_tool_reference": "mcp", "mcp_toolset_reference": "mcp",
}

var anthropicEdits = map[string]bool{
	"clear_tool_uses_20250919": true, "clear_thinking_20251015": true, "compact_20260112": true,
}

// messages judges the body of a request to /v1/messages or /v1/messages/count_tokens.
func (q *request) messages() (Told, *Refusal) {
	told := Told{CountsUsage: true}
	var refusal *Refusal
	if told.Model, refusal = q.model(q.root.get("model")); refusal != nil {
		return Told{}, refusal
	}
	if told.Stream, refusal = q.flag("stream"); refusal != nil {
		return Told{}, refusal
	}
	if refusal = q.anthropic(anthropicFields); refusal != nil {
		return Told{}, refusal
	}
	return told, nil
}

// anthropic judges a body by the fields that it may have.
func (q *request) anthropic(known map[string]look) *Refusal {
	if refusal := fields(q, known); refusal != nil {
		return refusal
	}
	for name, field := range q.root.members() {
		if refusal := (anthropic{q}).look(known[string(name)], name, field); refusal != nil {
			return refusal
		}
	}
	return nil
}
