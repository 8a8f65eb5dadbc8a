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
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Text is what the model says to everything.
const Text = "hello from the lab"

const model = "claude-sonnet-4-5"

// Model is the model behind all APIs. The zero value answers whoever asks, with Text, at once.
type Model struct {
	Key   string        // what every request must show, and no request anything else; none: whatever is shown is fine
	Tools bool          // have a command run, and answer once its result is told
	Hints bool          // with Tools: what is told must have what the shell says of a host that is refused
	Delay time.Duration // between the events of a stream

	mu    sync.Mutex
	calls map[string]int
}

// New returns a model that answers whoever asks.
func New() *Model { return &Model{} }

// Calls says how often each method and path was asked for; those that did not show the key are under "401 ".
func (m *Model) Calls() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.calls)
}

// Forget sets the counts to nothing.
func (m *Model) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = nil
}

func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := r.Method + " " + r.URL.Path
	shown := m.shown(r)
	if !shown {
		call = "401 " + call
	}
	m.mu.Lock()
	if m.calls == nil {
		m.calls = make(map[string]int)
	}
	m.calls[call]++
	m.mu.Unlock()
	if !shown {
		refuse(w, http.StatusUnauthorized, "authentication_error", "the key is not the model's")
		return
	}
	m.route(w, r)
}

// shown says whether a request has the key in each place where an API looks for one, and in one at least.
func (m *Model) shown(r *http.Request) bool {
	var keys []string
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key", "Api-Key"} {
		keys = append(keys, r.Header.Values(name)...)
	}
	for _, value := range r.Header.Values("Authorization") {
		keys = append(keys, strings.TrimPrefix(value, "Bearer "))
	}
	keys = append(keys, r.URL.Query()["key"]...)
	return m.Key == "" || len(keys) > 0 && !slices.ContainsFunc(keys, func(key string) bool { return key != m.Key })
}

func (m *Model) route(w http.ResponseWriter, r *http.Request) {
	answers := map[string]func(http.ResponseWriter, asked){
		"POST /v1/messages": m.messages,
		"POST /v1/messages/count_tokens": func(w http.ResponseWriter, _ asked) {
			reply(w, object{"input_tokens": 10})
		},
		"POST /v1/chat/completions":                 m.chat,
		"POST /compatible-mode/v1/chat/completions": m.chat,
		"POST /v1/responses":                        m.responses,
	}
	call := r.Method + " " + r.URL.Path
	answer := answers[call]
	gemini, isGemini := strings.CutPrefix(call, "POST /v1beta/models/")
	id, isModel := strings.CutPrefix(call, "GET /v1/models/")
	switch {
	case r.URL.Path == "/api/hello":
		reply(w, object{"message": "hello"})
	case call == "GET /v1/models":
		models(w)
	case isModel:
		reply(w, modelInfo(id))
	case call == "GET /v1/responses":
		w.WriteHeader(http.StatusUpgradeRequired)
	case answer == nil && !isGemini:
		refuse(w, http.StatusNotFound, "not_found_error", r.Method+" "+r.URL.Path+" is not served")
	default:
		a, err := read(w, r)
		switch {
		case err != nil:
			refuse(w, http.StatusBadRequest, "invalid_request_error", "body is not JSON")
		case isGemini:
			m.gemini(w, a, gemini)
		default:
			answer(w, a)
		}
	}
}

type object = map[string]any

// asked is what matters of any request.
type asked struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`

	body []byte
}

func read(w http.ResponseWriter, r *http.Request) (asked, error) {
	a := asked{Model: model}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	if err != nil {
		return a, err
	}
	a.body = body
	return a, json.Unmarshal(bytes.TrimSpace(body), &a)
}

func refuse(w http.ResponseWriter, status int, kind, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": kind, "message": text}})
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

func models(w http.ResponseWriter) {
	reply(w, object{"object": "list", "data": []any{modelInfo(model), modelInfo("gpt-4.1")},
		"has_more": false, "first_id": model, "last_id": "gpt-4.1"})
}
