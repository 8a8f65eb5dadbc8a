package container

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// saying is what the LLM endpoint answers to every prompt.
const saying = "hello from the far side"

// llm speaks as much of the Messages API as one turn without tools takes.
type llm struct {
	prompts atomic.Int64
	keys    sync.Map // that it was shown with a prompt
}

func (l *llm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
		io.WriteString(w, "{}")
		return
	}
	l.prompts.Add(1)
	l.keys.Store(r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"), true)
	var request struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"not JSON"}}`, http.StatusBadRequest)
		return
	}
	const usage = `{"input_tokens":9,"output_tokens":5}`
	message := `{"id":"msg_test","type":"message","role":"assistant","model":%q,"content":[%s],"stop_reason":%s,"stop_sequence":null,"usage":` + usage + `}`
	text := fmt.Sprintf(`{"type":"text","text":%q}`, saying)
	if !request.Stream {
		fmt.Fprintf(w, message, request.Model, text, `"end_turn"`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{
		`{"type":"message_start","message":` + fmt.Sprintf(message, request.Model, "", "null") + `}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, saying),
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":` + usage + `}`,
		`{"type":"message_stop"}`,
	} {
		kind, _, _ := strings.Cut(strings.TrimPrefix(event, `{"type":"`), `"`)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, event)
	}
}

// searchTool is what the search server offers.
const searchTool = "search_the_lab"

// withSearch answers for searchmcp, an MCP server over HTTP; next answers for every other host.
func withSearch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "searchmcp:8000" || r.URL.Path != "/mcp" {
			next.ServeHTTP(w, r)
			return
		}
		// To the end: a server that closes with something unread resets, and takes its answer back with that.
		if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20)); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": %q, "inputSchema": {"type": "object"}}]}}`, searchTool)
	})
}
