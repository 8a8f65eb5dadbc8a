package fakellm

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	delay   time.Duration
	number  int
}

func (m *Model) newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Request-Id", "req_lab")
	return &stream{w: w, control: http.NewResponseController(w), delay: m.Delay}
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
	fmt.Fprintf(s.w, "data: %s\n\n", quoted(v))
	_ = s.control.Flush()
	time.Sleep(s.delay)
}

func (s *stream) done() {
	fmt.Fprint(s.w, "data: [DONE]\n\n")
	_ = s.control.Flush()
}
