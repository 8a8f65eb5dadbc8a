package judge

import "slices"

// anthropic are the rules of Anthropic's Messages API, from the vendor's own types of November 2026
// (https://github.com/anthropics/anthropic-sdk-typescript, v1.14.0, src/resources/beta/messages/messages.ts), and from
// what Claude Code 2.1.330 sends besides: safeguards and context_hint. Left out are thread, billing_policy, blocks of the
// type container_upload, and sources by url and file: they are fetched, or kept by the provider.
var anthropic = tableOf(`
common  messages=[message] system=plain|[block] tools=[tool] mcp_servers=[server] fallbacks=fallbacks|[fallback]
  container=plain|container@code_execution context_management=management compaction=compaction
  max_tokens temperature top_p top_k inference_geo=word service_tier=word speed=word cache_control=cache
  diagnostics=diagnostics metadata=user stop_sequences=[plain] output_config=output output_format=format thinking=thinking
  tool_choice=choice fallback_credit_token=plain|credit safeguards=[safeguard] context_hint={plain}
request +common model stream
# Bedrock's invoke names the model in its path, and has headers of the API in the body.
invoke  +common anthropic_version=word anthropic_beta=[word]

message     role!=role content=plain|[block] clear_at=word output_config=output
server:url  @mcp name url authorization_token tool_configuration=free
container   id
fallback    model!=model max_tokens speed=word output_config=output thinking=thinking
management  edits=[edit]
compaction:summarize instructions
cache       type=word ttl=word scope=word
diagnostics previous_message_id=word
user        user_id
output      effort=word format=format task_budget=budget
budget      type=word total remaining
format:json_schema name schema=schema
thinking    type=word budget_tokens display=word block_binding=binding
binding     prefix_mismatch_behavior=word
choice      type=word name disable_parallel_tool_use
credit      token mode=word
safeguard   type classifier_context
caller      type=word tool_id=word
measure     type=word value

edit:clear_tool_uses_20250919 clear_at_least=measure clear_tool_inputs=plain|[plain] exclude_tools=[plain] keep=measure
  trigger=measure
edit:clear_thinking_20251015  keep=word|measure
edit:compact_20260112         instructions pause_after_compaction trigger=measure

block:text              text cache_control=cache citations=[citation]
block:thinking          thinking signature cache_control=cache
block:redacted_thinking data cache_control=cache
block:image             source=source transformations=transformations cache_control=cache
block:document          source=source title context citations=citing cache_control=cache
block:search_result     source title content=plain|[block] citations=citing cache_control=cache
block:tool_use          id name input=free caller=caller toolset_name cache_control=cache
block:tool_result       tool_use_id is_error content=plain|[block] toolset_name cache_control=cache
block:tool_reference    tool_name cache_control=cache
block:browser_state     tabs=[tab] state_changes=[change] cache_control=cache
block:tool_addition     tool=addition cache_control=cache
block:tool_removal      tool=addition cache_control=cache
block:compaction        content encrypted_content signature tool_changes=[block] cache_control=cache
block:fallback          from=origin to=target trigger=refusal
block:server_tool_use   id name=served input=free caller=caller cache_control=cache
block:tool_search_tool_result tool_use_id content=found cache_control=cache

block:web_search_tool_result  @web_search tool_use_id content=hit|[hit] caller=caller cache_control=cache
block:web_fetch_tool_result   @web_fetch tool_use_id content=page caller=caller cache_control=cache
block:advisor_tool_result     @advisor tool_use_id content=advice cache_control=cache
block:code_execution_tool_result             @code_execution tool_use_id content=run cache_control=cache
block:bash_code_execution_tool_result        @code_execution tool_use_id content=run cache_control=cache
block:text_editor_code_execution_tool_result @code_execution tool_use_id content=run cache_control=cache
block:mcp_tool_use     @mcp id name server_name input=free cache_control=cache
block:mcp_tool_result  @mcp tool_use_id is_error content=plain|[block] cache_control=cache
block:mcp_tool_listing @mcp mcp_server_name tools=[listed] cache_control=cache

source:base64  media_type data
source:text    media_type data
source:content content=plain|[block]

# Where a text was found is a label. It is not asked again.
citation type=word cited_text document_index document_title start_char_index end_char_index start_page_number
  end_page_number start_block_index end_block_index search_result_index source title url encrypted_index file_id
citing   enabled
transformations oversized_image=word
tab      tab_id title url active
change   type=word tab_id download_id url path size_bytes error
origin   model
target   model!=model
refusal  type=word category=word
found    type=word tool_references=[block] error_code=word error_message
hit      type=word title url encrypted_content page_age error_code=word
page:web_fetch_tool_result_error error_code=word
page:web_fetch_result url retrieved_at content=block
advice   type=word text encrypted_content stop_reason=word error_code=word
run      type=word content=plain|[made] return_code stdout stderr encrypted_stdout error_code=word error_message
  is_file_update lines=[plain] new_lines new_start old_lines old_start file_type=word num_lines start_line total_lines
made:code_execution_output      file_id
made:bash_code_execution_output file_id
listed   name description input_schema=schema

addition:tool_reference        name tool_name
addition:tool_definition       definition!=tool
addition:mcp_tool_reference    @mcp name server_name
addition:mcp_toolset_reference @mcp server_name

client  %type name description input_schema=schema input_examples=[free] strict defer_loading allowed_callers=[word]
  eager_input_streaming cache_control=cache
tool:       +client
tool:custom +client
tool:*      +client display_width_px display_height_px display_number enable_zoom max_characters configs={toggle}
  max_uses max_tokens max_content_tokens response_inclusion=word use_cache user_location=location allowed_domains=[plain]
  blocked_domains=[plain] url_sources={urls} citations=citing model=model caching=cache mcp_server_name
  default_config=toggle tools=[listed]
tool:advisor_20260301 +client max_uses max_tokens model!=model caching=cache
toggle      enabled defer_loading
location    type=word city country region timezone
urls        type=word tools=[named]
named       type=word name
`, false)

// servedTools are the names in server_tool_use, with their families. The first two search the list of tools in the
// request itself.
var servedTools = map[string]string{
	"tool_search_tool_regex": "", "tool_search_tool_bm25": "",
	"web_search": "web_search", "web_fetch": "web_fetch", "advisor": "advisor", "code_execution": "code_execution",
	"bash_code_execution": "code_execution", "text_editor_code_execution": "code_execution",
}

// messages judges the body of a request to /v1/messages or /v1/messages/count_tokens.
func (q *request) messages() (Told, *Refusal) { return q.told(q.ownModel, anthropic(), "request") }

// told judges a body that says whether its answer is a stream, and in which way which model it is for.
func (q *request) told(model func() (string, *Refusal), t *table, rule string) (told Told, refusal *Refusal) {
	told.CountsUsage = true
	if told.Model, refusal = model(); refusal == nil {
		told.Stream, refusal = q.flag("stream")
	}
	if refusal == nil {
		refusal = t.request(q, rule)
	}
	return told, refusal
}

// ownModel is the model that a body names.
func (q *request) ownModel() (string, *Refusal) { return q.model(q.root.get("model")) }

// served is the name of a tool that the provider has run.
func served(q *request, name []byte, v value) *Refusal {
	if family, ok := servedTools[string(v.str())]; !ok || family != "" {
		return q.provided(v.str(), family)
	}
	return nil
}

func role(_ *request, _ []byte, v value) *Refusal {
	if slices.Contains([]string{"user", "assistant", "system"}, string(v.str())) {
		return nil
	}
	return refuse("content", "a message of the role %s is not known to agent-init", quote(v.raw(), 64))
}

// fallbacks are other models that the provider asks. By a word, it chooses them itself.
func fallbacks(q *request, _ []byte, _ value) *Refusal {
	q.rests(func(r *Rested) { r.anyModel = true })
	if len(q.route.Models) > 0 {
		return refuse("model", "fallbacks that the provider chooses are not on the list of route %s (models)",
			q.route.Name)
	}
	return nil
}
