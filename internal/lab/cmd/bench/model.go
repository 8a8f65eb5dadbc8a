package main

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"
)

// The API is that of the gate's server, under the same name and at the same addresses, on a port of its own. What is
// answered depends on the model that is asked for.
const (
	apiPort = 8443
	apiKey  = "sk-ant-api03-bench"

	firstModel = "first" // a short stream
	slowModel  = "slow"  // an event each second
)

var apiURL = fmt.Sprintf("https://%s:%d", gatedName, apiPort)

// serveModel answers like Anthropic's Messages API (https://docs.claude.com/en/api/messages-streaming), over TLS.
func (b *bench) serveModel() {
	b.lab.Claim("tcp", apiPort)
	l, err := b.lab.Internet.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", apiPort))
	if err != nil {
		b.Fatalf("%v", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", answer)
	srv := &http.Server{Handler: mux, TLSConfig: b.lab.CA.ServerConfig(), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{MaxReadFrameSize: 16 << 10}} // as servers have it that say nothing (RFC 9113, 6.5.2)
	go func() { _ = srv.ServeTLS(l, "", "") }()
	b.Cleanup(func() { _ = srv.Close() })
	b.lab.DNS.SetAddrs(gatedName, gatedAddr)
}

func answer(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Api-Key")), []byte(apiKey)) == 0 {
		http.Error(w, "no key, or a wrong one", http.StatusUnauthorized)
		return
	}
	var asked struct{ Model string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s := stream{w}
	s.event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],`+
		`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}`)
	s.event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	s.flush()
	if asked.Model == slowModel {
		for tick := time.Tick(time.Second); ; s.flush() {
			s.delta()
			select {
			case <-tick:
			case <-r.Context().Done():
				return
			}
		}
	}
	s.delta()
	s.event("content_block_stop", `{"type":"content_block_stop","index":0}`)
	s.event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}`)
	s.event("message_stop", `{"type":"message_stop"}`)
}

// stream writes server-sent events.
type stream struct{ http.ResponseWriter }

func (s stream) event(name, data string) { fmt.Fprintf(s, "event: %s\ndata: %s\n\n", name, data) }

// delta is one event as a model sends it, with half a line of text.
func (s stream) delta() {
	s.event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, strings.Repeat("words, ", 6)))
}

func (s stream) flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() } // the request's context ends with it
