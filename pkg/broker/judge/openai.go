package judge

import "strings"

// openai are the rules of Chat Completions and Responses, from the vendor's own types of November 2026
// (https://github.com/openai/openai-node, v7.59.0, src/resources/responses/responses.ts and
// src/resources/chat/completions/completions.ts), and from what Codex 0.169 sends besides. The members that other servers
// of this API add are named with whose they are:
//
//   - OpenRouter's: https://github.com/OpenRouterTeam/typescript-sdk, v1.3.19, src/models/chatrequest.ts
//   - Groq's: https://github.com/groq/groq-typescript, v1.6.0, src/resources/chat/completions.ts
//   - Mistral's: https://github.com/mistralai/client-ts, v2.7.0, src/models/components/chatcompletionrequest.ts
//   - Ollama's: https://github.com/ollama/ollama, openai/openai.go and api/types.go
//   - vLLM's: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
//   - xAI's: https://docs.x.ai/docs/api-reference; DeepSeek's: https://api-docs.deepseek.com
//
// Left out is what has a server fetch, keep or go elsewhere: items that are a reference, Azure's data_sources, Groq's
// documents, search_settings and compound_custom, Mistral's guardrails, LiteLLM's api_base, api_key, base_url, user_config
// and extra_body, vLLM's chat_template and mm_processor_kwargs, OpenRouter's provider and route.
var openai = tableOf(`
common  model stream tools=[tool] tool_choice=plain|choice metadata={plain} moderation=moderation
  prompt_cache_options=caching prompt_cache_key prompt_cache_retention=word safety_identifier service_tier=word store
  parallel_tool_calls temperature top_p top_logprobs user stream_options=streaming
# xAI's, DashScope's and OpenRouter's ways to have the provider search.
  search_parameters=search plugins=[plugin] models=[model] session_id

chat    +common messages=[message] functions=[function] function_call=plain|named response_format=format
  prediction=prediction audio=voice logit_bias={plain} modalities=[word] stop=plain|[plain] frequency_penalty logprobs
  max_completion_tokens max_tokens n presence_penalty reasoning_effort=word seed verbosity=word web_search_options=search
# Sampling, of many servers.
  top_k top_a min_p repetition_penalty
# How much is thought, and how that is told: OpenRouter's, Groq's, DeepSeek's, Qwen's and vLLM's.
  reasoning=reasoning include_reasoning reasoning_format=word thinking=plain|thinking enable_thinking thinking_budget
  chat_template_kwargs=template enable_search=search
# OpenRouter's, Mistral's, Groq's and Ollama's.
  usage=usage transforms=[word] cache_control=cache
  safe_prompt random_seed prompt_mode=word
  citation_options=word disable_tool_validation
  keep_alive options=options think

# A stored answer can't be fetched over a route, and nothing of it can be referred to, so store may say what it likes.
# What the provider keeps can bring tools, instructions and content of its own.
responses +common background input=plain|[item] instructions text=textual reasoning=reasoning include=[word]
  context_management=[edit] client_metadata={plain} max_output_tokens max_tool_calls truncation=word
  prompt=kept previous_response_id=kept conversation=kept

plugged    id enabled engine=word max_results max_uses max_content_tokens search_prompt include_domains=[plain]
  exclude_domains=[plain] allowed_domains=[plain] blocked_domains=[plain]
cache      type=word ttl=word
marks      cache_control=cache copilot_cache_control=cache prompt_cache_breakpoint=breakpoint
breakpoint type=word mode=word ttl=word
caching    mode=word ttl=word comparison_response_id=kept
streaming  include_usage include_obfuscation continuous_usage_stats
moderation model!=model
prediction type=word content=plain|[part]
voice      format=word voice=word|voiced
voiced     id
reasoning  effort=word summary=word generate_summary=word context=word mode=word enabled exclude max_tokens
thinking   type=word budget_tokens display=word clear_thinking
template   enable_thinking thinking thinking_budget preserve_thinking clear_thinking reasoning_effort=word
usage      include
options    num_ctx num_predict num_keep num_batch seed temperature top_k top_p min_p typical_p repeat_last_n
  repeat_penalty presence_penalty frequency_penalty penalize_newline mirostat mirostat_tau mirostat_eta stop=[plain]
textual    verbosity=word format=format
edit:compaction compact_threshold

format:text
format:json_object schema=schema
format:json_schema name description strict schema=schema json_schema=named_schema
format:grammar     grammar
format:python
named_schema       name description strict schema=schema

# A message of any role. What a model has thought comes back in members that differ by the server.
message    +marks role! content=plain|[part] name refusal tool_call_id prefix tool_calls=[call] function_call=called
  audio=kept annotations=[annotation] images=[part] reasoning reasoning_content reasoning_text reasoning_opaque
  reasoning_details=[detail] thinking thinking_blocks=[thought] extra_content=extra
called     name arguments=free
written    name input=free
call:         id index function=called custom=written extra_content=extra
call:function id index function=called extra_content=extra
call:custom   id index custom=written extra_content=extra
extra      google=google
google     thought_signature thought
thought    type=word thinking signature data
detail:reasoning.text      id format=word index text signature
detail:reasoning.summary   id format=word index summary
detail:reasoning.encrypted id format=word index data
# OpenRouter keeps files that it has read in others.
annotation:url_citation url_citation=cited url title start_index end_index
cited      url title content start_index end_index

part:text           +marks text annotations=[annotation]
part:input_text     +marks text
part:output_text    +marks text annotations=[cite] logprobs=[logprob]
part:summary_text   text
part:reasoning_text text
part:refusal        +marks refusal
part:thinking       thinking=plain|[part] closed signature
part:image_url      +marks image_url=data|link
part:input_image    +marks image_url=data|link detail=word file_id=kept
part:computer_screenshot image_url=data|link detail=word file_id=kept
part:input_audio    +marks input_audio=base64|audio data=base64 format=word
part:file           +marks file=file file_id=kept
part:input_file     +marks file_data=data|link file_url=fetched file_id=kept filename detail=word
# vLLM's, and Mistral's.
part:video_url      video_url=data|link
part:audio_url      audio_url=data|link
part:document_url   document_url=data|link document_name
link       url=data detail=word format=word
audio      data=base64 format=word
file       file_data=data|link filename file_id=kept file_url=fetched
cite       type=word url title start_index end_index index file_id container_id filename
logprob    token logprob bytes=[plain] top_logprobs=[logprob]

function   +marks name description parameters=schema strict
format_of:text
format_of:grammar   syntax=word definition grammar=grammar
grammar    syntax=word definition
freeform   name description format=format_of
client     %type +marks name description strict async defer_loading allowed_callers=[word]
tool:            +client function=function
tool:function    +client function=function parameters=schema output_schema=schema
tool:custom      +client custom=freeform format=format_of
tool:namespace   +client tools=[tool]
tool:tool_search +client execution=word parameters=schema
tool:local_shell %type
tool:apply_patch %type allowed_callers=[word]
tool:computer    %type
tool:computer_use %type
tool:computer_use_preview %type display_width display_height environment=word
tool:shell       %type allowed_callers=[word] environment=environment
# What a route lets the provider run is told what the provider knows.
tool:*           +client *

environment:local           skills=[skill]
environment:container_auto  @shell file_ids=[word] memory_limit=word network_policy=free skills=free
environment:container_reference @shell container_id
skill      name description path

# Which tool is to be called. Those of the provider are in the list of tools besides, or are no choice.
named      name
choice:function %type name function=named
choice:custom   %type name custom=named
choice:shell
choice:apply_patch %type
choice:allowed_tools mode=word tools=[choice] allowed_tools=allowed
choice:*        %type name server_label
allowed    mode=word tools=[choice]

turn       id status=word internal_chat_message_metadata_passthrough=passthrough
calls      +turn call_id caller=caller namespace created_by
caller     type=word caller_id
passthrough turn_id create_time content_token_count content_item_kinds=[word] content_item_metadata=[told]
told       provenance=provenance
provenance type=word hook namespace name from_additional_requirements
configured effort=word summary=word context=word mode=word generate_summary=word
item:        +turn role! content!=plain|[part] phase=word
item:message +turn role! content=plain|[part] phase=word
item:reasoning +turn summary=[part] content=[part] encrypted_content
item:compaction +turn encrypted_content
item:compaction_trigger +turn
item:additional_tools +turn role tools=[tool]
# How much to think from here on, which Codex tells with its default model.
item:configuration_update +turn reasoning=configured
item:function_call           +calls name arguments
item:function_call_output    +calls name output=plain|[part]
item:custom_tool_call        +calls name input
item:custom_tool_call_output +calls name output=plain|[part]
item:tool_search_call        +calls execution=word arguments=free
item:tool_search_output      +calls execution=word tools=[tool]
item:local_shell_call        +calls action=action
item:local_shell_call_output +calls output
item:shell_call              +calls action=action environment=environment
item:shell_call_output       +calls output=plain|[shown] max_output_length
item:apply_patch_call        +calls operation=operation
item:apply_patch_call_output +calls output
item:computer_call           +calls action=move actions=[move] pending_safety_checks=[safety]
item:computer_call_output    +calls output=part acknowledged_safety_checks=[safety]
action     type=word command=plain|[plain] commands=[plain] env={plain} timeout_ms user working_directory max_output_length
shown      stdout stderr outcome=outcome created_by
outcome    type=word exit_code
operation  type=word path diff
move       type=word button=word x y keys=[word] path=[point] scroll_x scroll_y text ms
point      x y
safety     id code message

# What a tool of the provider's has found or made. A search that was repeated from the history is none.
item:web_search_call       +turn action=searched
item:image_generation_call @image_generation +turn result
item:file_search_call      @file_search +turn queries=[plain] results=free
item:code_interpreter_call @code_interpreter +turn code container_id outputs=free
item:program               @programmatic_tool_calling +turn call_id code fingerprint
item:program_output        @programmatic_tool_calling +turn call_id result
item:mcp_list_tools        @mcp +turn server_label tools=free error=free
item:mcp_approval_request  @mcp +turn server_label name arguments
item:mcp_approval_response @mcp +turn approval_request_id approve reason
item:mcp_call              @mcp +turn server_label name arguments approval_request_id output error=free
searched   type=word query queries=[plain] url pattern sources=[source]
source     type=word url
`, false)

// chat judges the body of a request to chat/completions.
func (q *request) chat() (Told, *Refusal) {
	told, refusal := q.told(q.deployed, openai(), "chat")
	asksUsage := q.root.get("stream_options").get("include_usage").kind() == 't'
	told.CountsUsage = !told.Stream || q.route.TellsUsage || asksUsage
	return told, refusal
}

// deployed is the model that a body names, or a path, as Azure has it. There, the body needs none.
func (q *request) deployed() (string, *Refusal) {
	_, after, ok := strings.Cut(q.path, "/deployments/")
	if !ok {
		return q.ownModel()
	}
	if !q.root.get("model").none() {
		if _, refusal := q.ownModel(); refusal != nil {
			return "", refusal
		}
	}
	deployment, _, _ := strings.Cut(after, "/")
	return deployment, q.allowed(deployment)
}

// responses judges the body of a request to responses.
func (q *request) responses() (Told, *Refusal) {
	if background, refusal := q.flag("background"); refusal != nil {
		return Told{}, refusal
	} else if background {
		return Told{}, refuse("field", "background is not allowed, since nobody could fetch the answer")
	}
	return q.told(q.ownModel, openai(), "responses")
}

// plugin is one of OpenRouter's (https://github.com/OpenRouterTeam/typescript-sdk, src/models/chatrequest.ts).
func plugin(q *request, _ []byte, v value) *Refusal {
	id := v.get("id").str()
	family := map[string]string{"web": "web_search", "web-fetch": "web_fetch"}[string(id)]
	switch string(id) {
	case "response-healing", "context-compression": // they see the request and the answer alone
	default:
		if refusal := q.provided(id, family); refusal != nil {
			return refusal
		}
	}
	return openai().members(q, []byte("a plugin"), openai().objects["plugged"], v)
}
