package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/room"
)

const (
	maxHeld = 8 << 20 // of a body that is read whole before it goes on, since it is judged or unpacked

	maxSmall = 16 << 10 // is read whole in any case

	heldTime = time.Minute // for a body to come
)

// body is what a request has behind its head. It goes on as it comes, or is held.
type body struct {
	x    *exchange
	from io.Reader
	form *judge.Form // looks for what changes the method; nil: nothing there does

	most    atomic.Int64 // bytes; 0: any number, less: none
	counted bool         // bytes that come are those that most counts

	held []byte // all of it, as it goes on

	sent     atomic.Int64
	whole    atomic.Bool // all of it has come
	mu       sync.Mutex
	over     *no         // why it ended before its end
	observed string      // why it would have been refused
	trailer  http.Header // of the request that goes on
}

var errTooMuch = errors.New("the body is larger than the policy admits")

// takeBody says what is to become of the request's body.
func (x *exchange) takeBody(h http.Header, query string) (*body, *no) {
	r, most := x.asked, x.admitted.MaxUpload
	codings := r.Header["Content-Encoding"]
	b := &body{x: x, from: r.Body, counted: len(codings) == 0}
	x.body = b
	b.most.Store(most)
	switch {
	case r.ContentLength == 0 && x.admitted.GraphQL == "":
		b.from = nil
		return b, nil
	case most < 0 && x.admitted.GraphQL != "":
	case most < 0 && r.ContentLength > 0:
		return nil, x.bodiless()
	case most > 0 && r.ContentLength > most:
		return nil, x.tooLarge()
	}
	if x.admitted.Form && x.admitted.GraphQL == "" {
		var n *no
		if b.form, n = judge.NewForm(r.Header.Get("Content-Type")); n != nil {
			return nil, n
		}
	}
	// A small one is not worth a connection of the client's, which ends with a request whose server answers too early.
	small := r.ContentLength > 0 && r.ContentLength <= maxSmall && len(codings) == 0 && r.Header["Expect"] == nil
	if most >= 0 && x.admitted.GraphQL == "" && !small && (most == 0 && b.form == nil || len(codings) == 0) {
		return b, nil
	}
	x.control.SetReadDeadline(time.Now().Add(heldTime))
	defer x.control.SetReadDeadline(time.Time{})
	defer context.AfterFunc(x.ctx, func() { x.control.SetReadDeadline(time.Now()) })()
	if most < 0 && x.admitted.GraphQL == "" {
		var first [1]byte
		n, err := io.ReadFull(r.Body, first[:])
		if n > 0 {
			return nil, x.bodiless()
		} else if err != io.EOF {
			return nil, badBody(err)
		}
		b.from = nil
		return b, nil
	}
	return b, b.hold(h, query, codings)
}

func (x *exchange) bodiless() *no {
	return refusal("body", x.event.Rule+" admits no body here (max_upload=SIZE does)")
}

func (x *exchange) tooLarge() *no {
	return refusal("size", "the body is larger than max_upload of "+x.event.Rule)
}

// hold reads a body whole and unpacks it, so that what goes on is what was judged and counted.
func (b *body) hold(h http.Header, query string, codings []string) *no {
	x, most, large := b.x, int64(maxHeld), refusal("size", "a body that has to be judged or unpacked has 8 MiB at most")
	if bound := b.most.Load(); bound != 0 && bound < most {
		most, large = max(0, bound), x.tooLarge()
	}
	size := most + 1
	if length := x.asked.ContentLength; len(codings) == 0 && length > most {
		return large
	} else if len(codings) == 0 && length >= 0 {
		size = length
	}
	from := &judge.Incoming{From: b.from}
	into := &room.Buffer{Hold: x.hold, Ctx: x.ctx, Most: int(size)}
	data, refused := judge.Unpack(strings.Join(codings, ", "), from, int(most), into.ReadAll)
	switch {
	case x.ctx.Err() != nil:
		return x.ended()
	case x.hold.Gave():
		return full
	case refused != nil && refused.What == "size":
		return large
	case refused != nil && refused.What == "header":
		return refusal("coding", refused.Text+"; send it as it is")
	case from.Err != nil:
		return badBody(from.Err)
	case refused != nil:
		return refused
	}
	delete(h, "Content-Encoding")
	b.held, b.from = data, nil
	b.sent.Store(int64(len(data)))
	if x.admitted.GraphQL == "" {
		return b.formed(data, true)
	}
	return b.unless(judge.GraphQL(x.asked.Header.Get("Content-Type"), query, data))
}

// full is the refusal of a request that has to give its room to others.
var full = refusal("busy", room.ErrFull.Error())

// badBody says why a body could not be read.
func badBody(err error) *no {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refusal("slow", "the body did not come in time")
	}
	return refusal("body", "the body did not come whole")
}

// onto has a request bring the body along.
func (b *body) onto(out *http.Request) {
	r := b.x.asked
	if b.held != nil || b.from == nil {
		delete(out.Header, "Expect") // nobody waits any more
	}
	switch {
	case b.held != nil:
		out.ContentLength = int64(len(b.held))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.held)), nil }
		out.Body, _ = out.GetBody()
	case b.from == nil:
		out.Body = http.NoBody
	default:
		out.ContentLength, out.Body = r.ContentLength, b
		if len(r.Trailer) > 0 && r.ContentLength < 0 {
			b.trailer = judge.Onward(r.Trailer, false)
			out.Trailer = b.trailer
		}
	}
}

// Read is one part, as it comes.
func (b *body) Read(p []byte) (int, error) {
	if n := b.why(); n != nil {
		return 0, n
	}
	if left, bound := b.left(); bound && int64(len(p)) > left+1 {
		p = p[:left+1]
	}
	n, err := b.from.Read(p)
	b.x.hold.Moved(n)
	b.x.silence.heard()
	if left, bound := b.left(); bound && int64(n) > left { // another policy may have come meanwhile
		b.stop(b.x.tooLarge())
		b.x.cancel(errTooMuch)
		return 0, errTooMuch
	}
	if refused := b.formed(p[:n], err == io.EOF); refused != nil {
		b.stop(refused)
		b.x.cancel(refused)
		return 0, refused
	}
	b.sent.Add(int64(n))
	if err == io.EOF {
		b.whole.Store(true)
	}
	if err == io.EOF && b.trailer != nil {
		for name := range b.trailer {
			b.trailer[name] = b.x.asked.Trailer[name]
		}
	}
	return n, err
}

// left is what may still come, if that is bound.
func (b *body) left() (n int64, bound bool) {
	most := b.most.Load()
	return max(0, most) - b.sent.Load(), most != 0
}

// formed looks into what goes on next for a parameter that has the server take the request for one of another method.
func (b *body) formed(next []byte, last bool) *no {
	if b.form == nil {
		return nil
	}
	refused := b.form.Judge(next)
	if refused == nil && last {
		refused = b.form.End()
	}
	return b.unless(refused)
}

// unless refuses what is in a body, or only tells of it.
func (b *body) unless(refused *no) *no {
	switch {
	case refused == nil:
		return nil
	case b.x.entry.Observe:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.observed = refused.What + ": " + refused.Text
		return nil
	}
	refused.Rule = b.x.admitted.Rule
	return refused
}

// Close leaves the rest to net/http, which has the connection.
func (b *body) Close() error { return nil }

// unread says whether a client of HTTP/1.1 still has to send some of it, so that its connection ends with this request.
func (b *body) unread() bool {
	return b.from != nil && b.x.asked.ProtoMajor == 1 && !b.whole.Load() && b.sent.Load() != b.x.asked.ContentLength
}

// leave has nobody wait for the rest. In HTTP/1.1, net/http would wait for who reads it, who waits for the client.
func (b *body) leave() {
	b.stop(refusal(gone, "the request is over"))
	if b.unread() {
		b.x.conn.unread.Store(true)
		b.x.control.SetReadDeadline(time.Now())
	}
}

func (b *body) stop(n *no) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		b.over = n
	}
}

// why is nil while the body may be sent.
func (b *body) why() *no {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// tell puts what was seen of the body into an event.
func (b *body) tell(e *Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Sent, e.Observed = b.sent.Load(), cmp.Or(e.Observed, b.observed)
}
