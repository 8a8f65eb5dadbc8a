package route

// Who runs a tool is a fact of the server, not of the API: OpenRouter runs what OpenAI leaves to the client
// (https://openrouter.ai/docs/guides/features/server-tools/shell). A type that a list leaves out is taken for the
// provider's, since its vendor may run it.

// functions are the tools that are the client's on any server, since they are nothing but a name and a schema.
func functions() []string {
	return []string{"function", "custom", "namespace", "functionDeclarations", "toolSpec", "cachePoint"}
}

// openaiTools are the client's at OpenAI and Azure (https://developers.openai.com/api/docs/guides/tools,
// https://learn.microsoft.com/azure/foundry/openai/how-to/responses). A search of tools looks at those in the request. A
// shell is the client's where the request says so.
func openaiTools() []string {
	return append(functions(), "tool_search", "local_shell", "shell", "apply_patch",
		"computer", "computer_use", "computer_use_preview")
}

// anthropicTools are the client's at Anthropic (https://docs.claude.com/en/docs/agents-and-tools/tool-use/overview), and
// on its models at Azure and Bedrock. The search for tools looks at those in the request.
func anthropicTools() []string {
	return append(functions(), "memory_20250818", "bash_20241022", "bash_20250124",
		"text_editor_20241022", "text_editor_20250124", "text_editor_20250429", "text_editor_20250728",
		"computer_20241022", "computer_20250124", "computer_20251124", "computer_toolset_20260801",
		"browser_toolset_20260801", "tool_search_tool_regex", "tool_search_tool_regex_20251119",
		"tool_search_tool_bm25", "tool_search_tool_bm25_20251119")
}

// Elsewhere is r on a server that its vendor does not run: which tools that one runs is not known.
func (r *Route) Elsewhere() {
	if r.ClientTools != nil {
		r.ClientTools = functions()
	}
}
