package fakellm

import (
	"net/http"
	"strings"
)

// chat is OpenAI's Chat Completions.
func (m *Model) chat(w http.ResponseWriter, a asked) {
	usage := object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	base := func(kind string, choice object) object {
		return object{"id": "chatcmpl-lab", "object": kind, "created": 1735689600, "model": a.Model, "choices": []any{choice}}
	}
	message, end := object{"role": "assistant", "content": m.text(a.body)}, "stop"
	if tool := m.toolOf(a.body); tool != nil {
		message, end = object{"role": "assistant", "content": nil, "tool_calls": []any{object{"index": 0, "id": "call_lab", "type": "function",
			"function": object{"name": tool.name, "arguments": quoted(tool.args)}}}}, "tool_calls"
	}
	if !a.Stream {
		whole := base("chat.completion", object{"index": 0, "finish_reason": end, "message": message})
		whole["usage"] = usage
		reply(w, whole)
		return
	}
	s := m.newStream(w)
	const kind = "chat.completion.chunk"
	if end != "stop" {
		s.data(base(kind, object{"index": 0, "delta": message, "finish_reason": nil}))
	} else {
		for _, word := range strings.SplitAfter(m.text(a.body), " ") {
			s.data(base(kind, object{"index": 0, "delta": object{"role": "assistant", "content": word}, "finish_reason": nil}))
		}
	}
	last := base(kind, object{"index": 0, "delta": object{}, "finish_reason": end})
	last["usage"] = usage
	s.data(last)
	s.done()
}

// responses is OpenAI's Responses API.
func (m *Model) responses(w http.ResponseWriter, a asked) {
	part := object{"type": "output_text", "text": m.text(a.body), "annotations": []any{}}
	item := object{"id": "msg_lab", "type": "message", "role": "assistant", "status": "completed", "content": []any{part}}
	tool := m.toolOf(a.body)
	switch {
	case tool != nil && tool.script != "":
		item = object{"id": "ctc_lab", "type": "custom_tool_call", "status": "completed", "call_id": "call_lab", "name": tool.name, "input": tool.script}
	case tool != nil:
		item = object{"id": "fc_lab", "type": "function_call", "status": "completed", "call_id": "call_lab", "name": tool.name,
			"arguments": quoted(tool.args)}
	}
	whole := object{"id": "resp_lab", "object": "response", "created_at": 1735689600, "status": "completed",
		"model": a.Model, "output": []any{item}, "usage": object{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
			"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0}}}
	if !a.Stream {
		reply(w, whole)
		return
	}
	s := m.newStream(w)
	begun := object{"id": "resp_lab", "object": "response", "created_at": 1735689600, "status": "in_progress", "model": a.Model, "output": []any{}}
	s.named(object{"type": "response.created", "response": begun})
	s.item(item, tool, m.text(a.body))
	s.named(object{"type": "response.output_item.done", "output_index": 0, "item": item})
	s.named(object{"type": "response.completed", "response": whole})
}

// item streams what comes before an item is done.
func (s *stream) item(item object, tool *call, text string) {
	added := object{"status": "in_progress"}
	for name, v := range item {
		switch name {
		case "content":
			added[name] = []any{}
		case "arguments", "input":
			added[name] = ""
		case "status":
		default:
			added[name] = v
		}
	}
	s.named(object{"type": "response.output_item.added", "output_index": 0, "item": added})
	delta := func(kind, text string) {
		s.named(object{"type": kind + ".delta", "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": text})
	}
	switch {
	case tool == nil:
		for _, word := range strings.SplitAfter(text, " ") {
			delta("response.output_text", word)
		}
	case tool.script != "":
		delta("response.custom_tool_call_input", tool.script)
		s.named(object{"type": "response.custom_tool_call_input.done", "item_id": item["id"], "output_index": 0, "input": tool.script})
	default:
		delta("response.function_call_arguments", quoted(tool.args))
		s.named(object{"type": "response.function_call_arguments.done", "item_id": item["id"], "output_index": 0, "arguments": quoted(tool.args)})
	}
}
