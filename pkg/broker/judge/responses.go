package judge

// responsesFields are those of OpenAI's Responses. A stored answer can't be fetched over a route, and nothing of it can
// be referred to, so `store` may say what it likes.
var responsesFields = map[string]look{
	"model": asPlain, "stream": asPlain, "background": asPlain,
	"input": asInput, "instructions": asPlain, "tools": asTools, "tool_choice": asChoice, "text": asSchema,
	"reasoning": asSettings, "include": asSettings, "stream_options": asSettings, "prompt_cache_options": asSettings,
	"context_management": asEdit, "moderation": asTarget, "metadata": asInert, "client_metadata": asInert,

	"max_output_tokens": asPlain, "max_tool_calls": asPlain, "parallel_tool_calls": asPlain,
	"prompt_cache_key": asPlain, "prompt_cache_retention": asPlain, "safety_identifier": asPlain, "service_tier": asPlain,
	"store": asPlain, "temperature": asPlain, "top_logprobs": asPlain, "top_p": asPlain, "truncation": asPlain, "user": asPlain,

	// What the provider keeps can bring tools, instructions and content of its own.
	"prompt": asKept, "previous_response_id": asKept, "conversation": asKept,

	// xAI's, and OpenRouter's.
	"search_parameters": asSearch, "plugins": asPlugins, "models": asModels, "session_id": asPlain,
}

// responsesItems are the types of items. Left out is item_reference.
var responsesItems = map[string]rule{
	"message": {members: has{"role": asPlain, "content": asContent, "id": asPlain, "status": asPlain}},
	"reasoning": {members: has{
		"id": asPlain, "summary": asContent, "content": asContent, "encrypted_content": asPlain, "status": asPlain}},
	"compaction":         {members: has{"id": asPlain, "encrypted_content": asPlain}},
	"compaction_trigger": {},
	"additional_tools":   {members: has{"role": asPlain, "tools": asTools}},
	// How much to think from here on, which Codex tells with its default model.
	"configuration_update": {closed: true, members: has{"reasoning": asSettings}},

	"function_call": {members: has{
		"id": asPlain, "call_id": asPlain, "name": asPlain, "arguments": asPlain, "status": asPlain,
		"caller": asSettings}},
	"function_call_output":    {members: has{"call_id": asPlain, "output": asContent, "caller": asSettings}},
	"custom_tool_call":        {members: has{"call_id": asPlain, "input": asPlain, "caller": asSettings}},
	"custom_tool_call_output": {members: has{"call_id": asPlain, "output": asContent, "caller": asSettings}},
	"tool_search_call":        {members: has{"call_id": asPlain, "arguments": asInert}},
	"tool_search_output":      {members: has{"call_id": asPlain, "tools": asTools}},
	"local_shell_call":        {members: has{"call_id": asPlain, "action": asInert}},
	"local_shell_call_output": {members: has{"call_id": asPlain, "output": asPlain}},
	"shell_call": {members: has{
		"call_id": asPlain, "action": asInert, "environment": asEnvironment, "caller": asSettings}},
	"shell_call_output": {members: has{"call_id": asPlain, "output": asInert, "caller": asSettings}},
	"apply_patch_call":  {members: has{"call_id": asPlain, "operation": asInert, "caller": asSettings}},
	"apply_patch_call_output": {members: has{
		"call_id": asPlain, "output": asPlain, "caller": asSettings}},
	"computer_call": {members: has{
		"call_id": asPlain, "action": asInert, "actions": asInert, "pending_safety_checks": asInert}},
	"computer_call_output": {members: has{
		"call_id": asPlain, "output": asScreenshot, "acknowledged_safety_checks": asInert}},

	// What a tool of the provider's has found or made. A search that was repeated from the history is none.
	"web_search_call":       {members: has{"action": asInert}},
	"image_generation_call": {family: "image_generation"},
	"file_search_call":      {family: "file_search", members: has{"queries": asInert, "results": asInert}},
	"code_interpreter_call": {family: "code_interpreter", members: has{"container_id": asPlain, "outputs": asInert}},
	"program":               {family: "programmatic_tool_calling"},
	"program_output":        {family: "programmatic_tool_calling"},
	"mcp_list_tools":        {family: "mcp", members: has{"server_label": asPlain, "tools": asInert, "error": asInert}},
	"mcp_approval_request":  {family: "mcp", members: has{"server_label": asPlain}},
	"mcp_approval_response": {family: "mcp"},
	"mcp_call":              {family: "mcp", members: has{"server_label": asPlain, "error": asInert}},
}

// responses judges the body of a request to responses.
func (q *request) responses() (Told, *Refusal) {
	told := Told{CountsUsage: true}
	var refusal *Refusal
	if told.Model, refusal = q.model(q.root.get("model")); refusal != nil {
		return Told{}, refusal
	}
	if told.Stream, refusal = q.flag("stream"); refusal != nil {
		return Told{}, refusal
	}
	background, refusal := q.flag("background")
	if refusal == nil && background {
		refusal = refuse("field", "background is not allowed, since nobody could fetch the answer")
	}
	if refusal != nil {
		return Told{}, refusal
	}
	if refusal = (openai{q}).judge(responsesFields); refusal != nil {
		return Told{}, refusal
	}
	return told, nil
}

// item is one of the input. One without a type is a message if it has what a message has, and a reference else.
func (q openai) item(v value) *Refusal {
	kind := v.get("type")
	name := kind.str()
	if kind.none() && !v.get("role").none() && !v.get("content").none() {
		name = []byte("message")
	} else if kind.none() || string(name) == "item_reference" {
		return refuse("content", "an item that only refers to another is not allowed, since it can't be judged")
	}
	r, ok := responsesItems[string(name)]
	if !ok {
		return unknown("an item", kind)
	}
	if r.family != "" {
		if refusal := q.provided(name, r.family); refusal != nil {
			return refusal
		}
	}
	return q.fits(v, name, r)
}
