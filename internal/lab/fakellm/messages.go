package fakellm

import (
	"net/http"
	"strings"
)

// messages is Anthropic's API.
func (m *Model) messages(w http.ResponseWriter, a asked) {
	usage := object{"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	block, stop := object{"type": "text", "text": m.text(a.body)}, "end_turn"
	tool := m.toolOf(a.body)
	if tool != nil {
		block, stop = object{"type": "tool_use", "id": "toolu_lab", "name": tool.name, "input": tool.args}, "tool_use"
	}
	msg := object{"id": "msg_lab", "type": "message", "role": "assistant", "model": a.Model,
		"content": []any{block}, "stop_reason": stop, "stop_sequence": nil, "usage": usage}
	if !a.Stream {
		reply(w, msg)
		return
	}
	s := m.newStream(w)
	msg["content"], msg["stop_reason"] = []any{}, nil
	s.named(object{"type": "message_start", "message": msg})
	delta := func(d object) { s.named(object{"type": "content_block_delta", "index": 0, "delta": d}) }
	if tool != nil {
		block["input"] = object{}
		s.named(object{"type": "content_block_start", "index": 0, "content_block": block})
		delta(object{"type": "input_json_delta", "partial_json": quoted(tool.args)})
	} else {
		s.named(object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
		s.named(object{"type": "ping"})
		for _, word := range strings.SplitAfter(m.text(a.body), " ") {
			delta(object{"type": "text_delta", "text": word})
		}
	}
	s.named(object{"type": "content_block_stop", "index": 0})
	s.named(object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	s.named(object{"type": "message_stop"})
}
