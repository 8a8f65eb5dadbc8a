package judge

import "strings"

// chatFields are those of OpenAI's Chat Completions, and of those that speak its API: what they add is named behind.
// Left out is what has a server fetch, keep or go elsewhere: Azure's data_sources, Groq's documents, search_settings
// and compound_custom, Mistral's guardrails, LiteLLM's api_base, api_key, base_url, user_config and extra_body, vLLM's
// chat_template and mm_processor_kwargs, OpenRouter's provider and route.
var chatFields = map[string]look{
	"model": asPlain, "stream": asPlain, "stream_options": asSettings,
	"messages": asMessages, "tools": asTools, "functions": asSchema,
	"tool_choice": asChoice, "function_call": asSettings, "response_format": asSchema, "prediction": asPrediction,
	"audio": asSettings, "metadata": asInert, "logit_bias": asSettings, "modalities": asSettings, "stop": asInert,
	"moderation": asTarget, "prompt_cache_options": asSettings,

	"frequency_penalty": asPlain, "logprobs": asPlain, "max_completion_tokens": asPlain, "max_tokens": asPlain,
	"n":                   asPlain,
	"parallel_tool_calls": asPlain, "presence_penalty": asPlain, "prompt_cache_key": asPlain,
	"prompt_cache_retention": asPlain, "reasoning_effort": asPlain, "safety_identifier": asPlain, "seed": asPlain,
	"service_tier": asPlain, "store": asPlain, "temperature": asPlain, "top_logprobs": asPlain, "top_p": asPlain,
	"user": asPlain, "verbosity": asPlain,

	// Sampling, of many servers.
	"top_k": asPlain, "top_a": asPlain, "min_p": asPlain, "repetition_penalty": asPlain,

	// How much is thought, and how that is told: OpenRouter's, Groq's, DeepSeek's, Qwen's and vLLM's.
	"reasoning": asSettings, "include_reasoning": asPlain, "reasoning_format": asPlain, "thinking": asSettings,
	"enable_thinking": asPlain, "thinking_budget": asPlain, "chat_template_kwargs": asSettings,

	"usage": asSettings, "transforms": asSettings, "session_id": asPlain, "cache_control": asSettings, // OpenRouter's
	"safe_prompt": asPlain, "random_seed": asPlain, "prompt_mode": asPlain, // Mistral's
	"citation_options": asPlain, "disable_tool_validation": asPlain, // Groq's
	"keep_alive": asPlain, "options": asSettings, "think": asPlain, // Ollama's

	// OpenAI's, xAI's, DashScope's and OpenRouter's ways to have the provider search.
	"web_search_options": asSearch, "search_parameters": asSearch, "enable_search": asSearch, "plugins": asPlugins,

	"models": asModels, // OpenRouter's, which asks the next when one fails
}

// chatMessage is a message of any role. What a model has thought comes back in members that differ by the server.
var chatMessage = rule{members: map[string]look{
	"role": asPlain, "content": asContent, "name": asPlain, "refusal": asPlain, "tool_call_id": asPlain,
	"prefix": asPlain, "tool_calls": asCalls, "function_call": asInert, "audio": asKept,
	"annotations": asAnnotations, "images": asContent,
	"reasoning": asPlain, "reasoning_content": asPlain, "reasoning_text": asPlain, "reasoning_opaque": asPlain,
	"reasoning_details": asInert, "thinking": asPlain, "thinking_blocks": asInert, "extra_content": asSettings,
}}

var chatCall = rule{members: map[string]look{
	"id": asPlain, "index": asPlain, "function": asInert, "custom": asInert, "extra_content": asSettings,
}}

// chat judges the body of a request to chat/completions.
func (q *request) chat() (Told, *Refusal) {
	var told Told
	var refusal *Refusal
	if told.Model, refusal = q.deployed(); refusal != nil {
		return Told{}, refusal
	}
	if told.Stream, refusal = q.flag("stream"); refusal != nil {
		return Told{}, refusal
	}
	if refusal = (openai{q}).judge(chatFields); refusal != nil {
		return Told{}, refusal
	}
	asksUsage := q.root.get("stream_options").get("include_usage").kind() == 't'
	told.CountsUsage = !told.Stream || q.route.TellsUsage || asksUsage
	return told, nil
}

// deployed is the model that a body names, or a path, as Azure has it. There, the body needs none.
func (q *request) deployed() (string, *Refusal) {
	model := q.root.get("model")
	_, after, ok := strings.Cut(q.path, "/deployments/")
	if !ok {
		return q.model(model)
	}
	if !model.none() {
		if _, refusal := q.model(model); refusal != nil {
			return "", refusal
		}
	}
	deployment, _, _ := strings.Cut(after, "/")
	return deployment, q.allowed(deployment)
}

func (q openai) message(v value) *Refusal {
	role := v.get("role")
	if role.kind() != text {
		return refuse("content", "a message without a role is not allowed")
	}
	return q.fits(v, []byte("a message"), chatMessage)
}

// call is one of a tool that the client has run.
func (q openai) call(v value) *Refusal {
	switch kind := v.get("type"); {
	case kind.none(), string(kind.str()) == "function", string(kind.str()) == "custom":
		return q.fits(v, []byte("tool_calls"), chatCall)
	default:
		return unknown("a call", kind)
	}
}
