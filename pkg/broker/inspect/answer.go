package inspect

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/buffer"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/onward"
)

var errSilent = errors.New("nothing was heard for too long")

// silence ends what nobody hears of any more, until it is over itself.
type silence struct {
	of *exchange

	mu        sync.Mutex
	timer     *time.Timer
	answering bool
	fired     bool
	over      bool
}

func (x *exchange) watch() *silence {
	s := &silence{of: x}
	s.timer = time.AfterFunc(x.server.idle, func() { x.cancel(errSilent) })
	context.AfterFunc(x.ctx, s.cut)
	return s
}

// cut has nobody wait for a client that neither reads nor sends.
func (s *silence) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return // the connection is another request's by now
	}
	s.fired = true
	if b := s.of.body; b.from != nil && !b.whole.Load() {
		s.of.control.SetReadDeadline(time.Now()) // else the transport, which sends the body, returns no sooner
	}
	if s.answering { // before, it is to hear why
		s.of.control.SetWriteDeadline(time.Now())
	}
}

// heard says that something goes on.
func (s *silence) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.timer.Reset(s.of.server.idle)
	}
}

// answer says whether the client hears from the server, and not why there is no answer.
func (s *silence) answer(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answering = is; is && s.fired {
		s.of.control.SetWriteDeadline(time.Now())
	}
}

func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.timer.Stop()
}

// forward asks the server and passes its answer on.
func (x *exchange) forward(w http.ResponseWriter, out *http.Request) {
	x.silence = x.watch()
	defer x.body.leave()
	defer x.silence.end() // first: what leave ends of the client's side is no reason to cut the answer off
	if x.asked.ProtoMajor == 1 && x.body.from != nil {
		x.control.EnableFullDuplex() // an answer may begin before the request is over, as in HTTP/2
	}
	resp, err := x.ask(w, out)
	var ended *no
	if _ = errors.As(context.Cause(x.ctx), &ended); ended == nil {
		ended = x.body.why()
	}
	if err == nil && ended != nil { // it answers what was cut off
		resp.Body.Close()
		err = ended
	}
	if err != nil {
		x.refuse(w, x.fault(err))
		return
	}
	x.event.FirstByte = time.Since(x.began)
	if n := x.refusedByProxy(resp); n != nil {
		resp.Body.Close()
		x.refuse(w, n)
		return
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		x.upgrade(w, out, resp)
		return
	}
	defer resp.Body.Close()
	if x.event.Route != "" {
		x.key.credential.Blank(x.asked.Method, resp)
	}
	x.silence.heard()
	x.silence.answer(true)
	err = x.pass(w, resp)
	// A server may end its answer at TLS's close_notify, which comes before the connection's end.
	if _ = errors.As(context.Cause(x.ctx), &ended); err != nil || ended != nil {
		if x.event.Refused == "" && x.ctx.Err() != nil {
			n := x.ended()
			x.event.Refused = n.What + ": " + n.Text
		}
		panic(http.ErrAbortHandler) // the client has to see that this is not all
	}
}

// ended is why a request ended that was under way.
func (x *exchange) ended() *no {
	if over := x.body.why(); over != nil {
		return over
	}
	cause := context.Cause(x.ctx)
	var changed *no
	switch {
	case errors.As(cause, &changed):
		return changed
	case errors.Is(cause, errSilent):
		return refusal("late", x.conn.name+" was silent for too long")
	}
	return refusal(gone, "the client hung up")
}

// fault is why the server was not reached.
func (x *exchange) fault(err error) *no {
	if x.ctx.Err() != nil {
		return x.ended()
	}
	if over := x.body.why(); over != nil {
		return over
	}
	return onward.FaultOf(x.conn.name, err)
}

// pass passes an answer on.
func (x *exchange) pass(w http.ResponseWriter, resp *http.Response) error {
	h := w.Header()
	x.back(h, resp.Header)
	for _, name := range []string{"Content-Type", "Date"} {
		if h[name] == nil {
			h[name] = nil // else net/http adds one
		}
	}
	announced := make([]string, 0, len(resp.Trailer))
	for name := range resp.Trailer {
		announced = append(announced, name)
	}
	if slices.Sort(announced); len(announced) > 0 {
		h["Trailer"] = announced
	}
	if length := resp.Header["Content-Length"]; len(length) == 1 && len(announced) == 0 && resp.StatusCode != http.StatusNoContent {
		h["Content-Length"] = length // net/http has looked at it, and holds us to it. HTTP/1.1 has no trailers with one
	}
	if x.body.unread() {
		h["Connection"] = []string{"close"} // else a client may send its next request where nobody reads any more
	}
	x.event.Status = resp.StatusCode
	w.WriteHeader(resp.StatusCode)
	flush := resp.ContentLength < 0 || len(announced) > 0
	if flush {
		if err := x.control.Flush(); err != nil {
			return err
		}
	}
	if err := x.copy(w, resp.Body, flush); err != nil {
		return err
	}
	if len(resp.Trailer) > 0 {
		trailers := http.Header{}
		x.back(trailers, resp.Trailer)
		for name, values := range trailers {
			if !slices.Contains(announced, name) {
				name = http.TrailerPrefix + name
			}
			h[name] = values
		}
	}
	return nil
}

// back takes those headers of the server's that pass. None repeats a credential that was put on.
func (x *exchange) back(to, from http.Header) {
	for name, values := range judge.Back(from, x.key != nil && x.key.takes) {
		if x.key != nil {
			values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return x.key.credential.In(name, v) })
		}
		if len(values) > 0 {
			to[name] = values
		}
	}
}

// copy passes each part on as it comes. Of an answer whose length is known, it collects half of a buffer at least: that is
// a download, of which nobody waits for the single parts. A frame of HTTP/2 has as much, and so has a record of TLS.
func (x *exchange) copy(w io.Writer, from io.Reader, flush bool) error {
	var buf buffer.Buffer
	defer buf.Free()
	for {
		b := buf.Bytes()
		n, err := from.Read(b)
		for !flush && err == nil && n < len(b)/2 {
			var more int
			more, err = from.Read(b[n:])
			n += more
			x.silence.heard()
		}
		if n > 0 {
			x.silence.heard()
			x.event.Received += int64(n)
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			if flush {
				if err := x.control.Flush(); err != nil {
					return err
				}
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		buf.Fit(n, n >= len(b)/2)
	}
}
