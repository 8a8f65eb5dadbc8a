package inspect

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"

	"github.com/agent-init/agent-init/pkg/broker/onward"
)

// ask sends a request to its server. Whoever waits for a connection waits for one of a few that are made.
func (x *exchange) ask(w http.ResponseWriter, out *http.Request) (*http.Response, error) {
	made, err := x.server.turns.wait(x.ctx, x.conn.place)
	if err != nil {
		return nil, err
	}
	defer made()
	hints := &hints{w: w, x: x}
	defer hints.end()
	trace := &httptrace.ClientTrace{
		GotConn:        func(httptrace.GotConnInfo) { made() },
		Got1xxResponse: hints.pass,
	}
	return x.table.transport.RoundTrip(x.byProxy(out.WithContext(httptrace.WithClientTrace(x.ctx, trace))))
}

// turns bounds the connections that are made to one server at once. With HTTP/2 the first serves all who wait. The agent
// may ask for any number of names below a wildcard, so that some share their turns.
type turns struct {
	seed maphash.Seed
	of   [64]chan struct{}
}

func newTurns() *turns {
	t := &turns{seed: maphash.MakeSeed()}
	for i := range t.of {
		t.of[i] = make(chan struct{}, onward.MaxDials)
	}
	return t
}

// wait takes a turn, which its caller gives back.
func (t *turns) wait(ctx context.Context, p place) (done func(), err error) {
	turn := t.of[maphash.Comparable(t.seed, p)%uint64(len(t.of))]
	select {
	case turn <- struct{}{}:
		return sync.OnceFunc(func() { <-turn }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hints passes on what a server says before its answer (RFC 8297). net/http says 100 by itself, once the server has, or
// takes the body without.
type hints struct {
	x *exchange

	mu   sync.Mutex
	w    http.ResponseWriter // nil: the answer has begun
	said int                 // so far
}

// maxHints are the answers before its answer that a server may send. net/http bounds the length of each alone.
const maxHints = 64

var errHints = errors.New("it sends answers before its answer without end")

func (h *hints) pass(code int, head textproto.MIMEHeader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said++; h.said > maxHints {
		return errHints
	}
	if h.w == nil || code != http.StatusEarlyHints && code != http.StatusProcessing {
		return nil
	}
	if r := h.x.asked; r.ProtoMajor == 1 && r.Header["Expect"] != nil {
		return nil // net/http may be about to say 100 where the body is read, and both would write at once
	}
	h.x.back(h.w.Header(), http.Header(head))
	h.x.silence.answer(true) // who does not read is not waited for
	h.w.WriteHeader(code)
	h.x.silence.answer(false)
	clear(h.w.Header())
	return nil
}

func (h *hints) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.w = nil
}
