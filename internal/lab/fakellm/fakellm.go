// Package fakellm answers like the API of a language model, always the same,
// well enough for agent command lines to be satisfied with it.
//
// Anthropic: messages (whole and streamed), count_tokens, models, hello.
// OpenAI: chat completions (under DashScope's path as well) and responses (whole
// and streamed; not by WebSocket), models.
// Gemini: generateContent and streamGenerateContent, countTokens.
// Everything else is a 404 with a JSON error.
package fakellm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Text is what the model says to everything.
const Text = "hello from the lab"

const model = "claude-sonnet-4-5"

// New returns the handler. It has no state.
func New() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/hello", func(w http.ResponseWriter, _ *http.Request) { reply(w, object{"message": "hello"}) })
	mux.HandleFunc("GET /v1/models", models)
	mux.HandleFunc("GET /v1/models/{id}", func(w http.ResponseWriter, r *http.Request) { reply(w, modelInfo(r.PathValue("id"))) })
	mux.HandleFunc("POST /v1/messages", messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, object{"input_tokens": 10})
	})
	mux.HandleFunc("POST /v1/chat/completions", chat)
	mux.HandleFunc("POST /compatible-mode/v1/chat/completions", chat)
	mux.HandleFunc("POST /v1/responses", responses)
	mux.HandleFunc("GET /v1/responses", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUpgradeRequired) })
	mux.HandleFunc("POST /v1beta/models/{call}", gemini)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(object{"type": "error",
			"error": object{"type": "not_found_error", "message": r.Method + " " + r.URL.Path + " is not served"}})
	})
	return mux
}

type object = map[string]any

// asked is what matters of any request.
type asked struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
}

func read(w http.ResponseWriter, r *http.Request) (asked, bool) {
	a := asked{Model: model}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(&a); err != nil {
		http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"body is not JSON"}}`, http.StatusBadRequest)
		return a, false
	}
	return a, true
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", "req_lab")
	_ = json.NewEncoder(w).Encode(v)
}

func modelInfo(id string) object {
	return object{"type": "model", "object": "model", "id": id, "display_name": id,
		"created_at": "2025-01-01T00:00:00Z", "created": 1735689600, "owned_by": "lab"}
}

func models(w http.ResponseWriter, _ *http.Request) {
	reply(w, object{"object": "list", "data": []any{modelInfo(model), modelInfo("gpt-4.1")},
		"has_more": false, "first_id": model, "last_id": "gpt-4.1"})
}

func messages(w http.ResponseWriter, r *http.Request) {
	a, ok := read(w, r)
	if !ok {
		return
	}
	usage := object{"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	msg := object{"id": "msg_lab", "type": "message", "role": "assistant", "model": a.Model,
		"content": []any{object{"type": "text", "text": Text}}, "stop_reason": "end_turn", "stop_sequence": nil, "usage": usage}
	if !a.Stream {
		reply(w, msg)
		return
	}
	s := newStream(w)
	msg["content"], msg["stop_reason"] = []any{}, nil
	s.named(object{"type": "message_start", "message": msg})
	s.named(object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
	s.named(object{"type": "ping"})
	for _, word := range strings.SplitAfter(Text, " ") {
		s.named(object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": word}})
	}
	s.named(object{"type": "content_block_stop", "index": 0})
	s.named(object{"type": "message_delta", "delta": object{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": usage})
	s.named(object{"type": "message_stop"})
}

func chat(w http.ResponseWriter, r *http.Request) {
	a, ok := read(w, r)
	if !ok {
		return
	}
	usage := object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	base := func(kind string, choice object) object {
		return object{"id": "chatcmpl-lab", "object": kind, "created": 1735689600, "model": a.Model, "choices": []any{choice}}
	}
	if !a.Stream {
		whole := base("chat.completion", object{"index": 0, "finish_reason": "stop",
			"message": object{"role": "assistant", "content": Text}})
		whole["usage"] = usage
		reply(w, whole)
		return
	}
	s := newStream(w)
	const kind = "chat.completion.chunk"
	s.data(base(kind, object{"index": 0, "delta": object{"role": "assistant", "content": Text}, "finish_reason": nil}))
	last := base(kind, object{"index": 0, "delta": object{}, "finish_reason": "stop"})
	last["usage"] = usage
	s.data(last)
	s.done()
}

func responses(w http.ResponseWriter, r *http.Request) {
	a, ok := read(w, r)
	if !ok {
		return
	}
	part := object{"type": "output_text", "text": Text, "annotations": []any{}}
	item := object{"id": "msg_lab", "type": "message", "role": "assistant", "status": "completed", "content": []any{part}}
	whole := object{"id": "resp_lab", "object": "response", "created_at": 1735689600, "status": "completed",
		"model": a.Model, "output": []any{item}, "usage": object{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
			"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0}}}
	if !a.Stream {
		reply(w, whole)
		return
	}
	s := newStream(w)
	begun := object{"id": "resp_lab", "object": "response", "created_at": 1735689600, "status": "in_progress", "model": a.Model, "output": []any{}}
	s.named(object{"type": "response.created", "response": begun})
	s.named(object{"type": "response.output_item.added", "output_index": 0,
		"item": object{"id": "msg_lab", "type": "message", "role": "assistant", "status": "in_progress", "content": []any{}}})
	s.named(object{"type": "response.output_text.delta", "item_id": "msg_lab", "output_index": 0, "content_index": 0, "delta": Text})
	s.named(object{"type": "response.output_item.done", "output_index": 0, "item": item})
	s.named(object{"type": "response.completed", "response": whole})
}

// gemini serves MODEL:METHOD.
func gemini(w http.ResponseWriter, r *http.Request) {
	if _, ok := read(w, r); !ok {
		return
	}
	name, method, _ := strings.Cut(r.PathValue("call"), ":")
	whole := object{"modelVersion": name, "responseId": "lab",
		"candidates": []any{object{"index": 0, "finishReason": "STOP",
			"content": object{"role": "model", "parts": []any{object{"text": Text}}}}},
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}}
	switch method {
	case "generateContent":
		reply(w, whole)
	case "streamGenerateContent":
		newStream(w).data(whole)
	case "countTokens":
		reply(w, object{"totalTokens": 10})
	default:
		http.NotFound(w, r)
	}
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	number  int
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Request-Id", "req_lab")
	return &stream{w: w, control: http.NewResponseController(w)}
}

// named sends an event under its own type.
func (s *stream) named(event object) {
	if strings.HasPrefix(event["type"].(string), "response.") {
		event["sequence_number"] = s.number
		s.number++
	}
	fmt.Fprintf(s.w, "event: %s\n", event["type"])
	s.data(event)
}

func (s *stream) data(v object) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("fakellm: " + err.Error()) // values of our own making
	}
	fmt.Fprintf(s.w, "data: %s\n\n", raw)
	_ = s.control.Flush()
}

func (s *stream) done() {
	fmt.Fprint(s.w, "data: [DONE]\n\n")
	_ = s.control.Flush()
}
