package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/buffer"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/route"
)

var (
	errHungUp = errors.New("the client hung up")
	errSilent = errors.New("the server was silent for too long")
	errTold   = errors.New("the answer was shorter or longer than it said")
)

// answering begins an answer. The connection is nobody else's by now, and is closed at the end. It is not ok if all is
// over already.
func (x *exchange) answering() (a *answer, ok bool) {
	a = &answer{x: x, conn: x.caller, ctx: x.ctx, moved: x.hold.Moved}
	a.silence = time.AfterFunc(x.proxy.idle, func() { x.cancel(errSilent) })
	forget, unseen := x.proxy.hangups.watch(x.caller.Conn, func() { x.cancel(errHungUp) })
	a.end = func() {
		a.silence.Stop()
		x.body.drop()
		forget()
		if x.up != nil {
			x.caller.refusing.Store(true) // the server may have had enough of it before its end
		}
		x.caller.Close()
		x.leave()
	}
	if unseen != nil {
		a.fail(refusal("busy", "the kernel watches no more connections"))
		return nil, false
	}
	return a, true
}

// forward asks the API and passes its answer on.
func (x *exchange) forward(out *http.Request) {
	a, ok := x.answering()
	if ok && x.way.registry != nil {
		out, ok = x.consult(a, out)
	}
	if ok {
		a.ask(out)
	}
}

// ask sends a request, and has its answer passed on.
func (a *answer) ask(out *http.Request) {
	x := a.x
	var asked atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { asked.Store(true) }}
	resp, err := x.goal.up.ask(out.WithContext(httptrace.WithClientTrace(a.ctx, trace)))
	if err != nil {
		if asked.Load() {
			x.unheard()
		}
		n := x.fault(a.ctx, x.goal, err)
		if early := x.up.no(); early != nil && n.What != gone {
			n = early
		}
		a.fail(n)
		return
	}
	x.goal.key.Blank(x.event.Method, resp)
	resp.Request = nil // the transport holds the answer for as long as it lasts, and has another of this
	x.body.answered()
	x.event.FirstByte = time.Since(x.began)
	if s := resp.StatusCode; s < 200 || s > 299 && s < 400 || s > 599 {
		resp.Body.Close()
		a.fail(strange(x.goal, s))
		return
	}
	if resp.StatusCode == http.StatusUnauthorized && x.way.route.Shape == route.GitShape {
		// git would ask for a password, which nobody has.
		resp.Body.Close()
		a.fail(refusal("server", fmt.Sprintf("%s wants another credential for this repository than route %s has",
			x.goal.up.place.host, x.way.route.Name)))
		return
	}
	if x.endpoint.Answer == route.LFSAnswer && resp.StatusCode < 300 {
		a.batch(resp)
		return
	}
	// A stream may last for minutes. A goroutine of its own has a small stack: this one's has grown by asking.
	go a.pass(resp)
}

// strange is about a status that no client may act on.
func strange(g goal, status int) *no {
	return refusal("server", fmt.Sprintf("%s answered with status %d, and the broker follows no redirect",
		g.up.place.host, status))
}

// pass passes an answer on, and ends the exchange.
func (a *answer) pass(resp *http.Response) {
	defer a.end()
	defer resp.Body.Close()
	x := a.x
	a.meter = judge.NewMeter(x.endpoint.Body, resp.Header.Get("Content-Type"))
	defer a.untilEnd()()
	if err := a.send(resp); err != nil && a.ctx.Err() == nil {
		x.proxy.config.Log.Debug("an answer of a route ended early", "route", x.event.Route)
	} else if n := x.ended(); err != nil && n != nil {
		x.event.Refused = n.What + ": " + n.Text
	}
	x.count(resp.StatusCode, a.meter)
	x.over(resp.StatusCode)
}

// untilEnd has writes fail once ctx is over: the client may not read what comes.
func (a *answer) untilEnd() (stop func() bool) {
	a.passing = true
	return context.AfterFunc(a.ctx, func() { a.conn.SetWriteDeadline(time.Unix(1, 0)) })
}

// fail answers in the place of the API.
func (a *answer) fail(n *no) {
	defer a.end()
	status, head, body := a.x.say(n)
	if n.What == gone || a.write(append(headOf(status, head), body...)) != nil {
		status = 0
	}
	a.x.over(status)
}

// answer passes one answer on.
type answer struct {
	x       *exchange
	conn    net.Conn
	ctx     context.Context
	end     func()
	silence *time.Timer
	meter   *judge.Meter
	chunked bool
	passing bool      // what is written is what a server says: nothing of it follows the end of ctx
	moved   func(int) // what is held goes; the answer is the broker's own
}

// send writes the head, and then the body as it comes.
func (a *answer) send(resp *http.Response) error {
	head := a.x.back(resp.Header)
	resp.Header = nil // likewise
	bodiless := a.x.event.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent
	switch {
	case bodiless:
	case resp.ContentLength >= 0:
		head.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	default:
		a.chunked = true
		head.Set("Transfer-Encoding", "chunked")
	}
	if err := a.write(headOf(resp.StatusCode, head)); err != nil || bodiless {
		return err
	}
	if err := a.copy(resp.Body); err != nil {
		return err
	}
	if a.chunked {
		return a.write([]byte("0\r\n\r\n"))
	}
	if a.x.event.Received != resp.ContentLength {
		return errTold
	}
	return nil
}

func (a *answer) write(b []byte) error {
	a.conn.SetWriteDeadline(time.Now().Add(a.x.proxy.idle))
	if a.passing && a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	_, err := a.conn.Write(b)
	return err
}

const (
	chunkHead = len("ffff\r\n") // in front of what is read
	chunkTail = len("\r\n")
)

// copy passes each part on as it comes.
func (a *answer) copy(body io.Reader) error {
	var buf buffer.Buffer
	defer buf.Free()
	for {
		b := buf.Bytes()
		n, err := body.Read(b[chunkHead : len(b)-chunkTail])
		a.silence.Reset(a.x.proxy.idle)
		if n > 0 {
			a.x.event.Received += int64(n)
			a.meter.Write(b[chunkHead : chunkHead+n])
			if err := a.write(a.framed(b, n)); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		buf.Fit(n, n == len(b)-chunkHead-chunkTail)
	}
}

// framed is what the first n bytes behind a chunk's head are on the wire (RFC 9112, 7.1).
func (a *answer) framed(b []byte, n int) []byte {
	if !a.chunked {
		return b[chunkHead : chunkHead+n]
	}
	var size [chunkHead]byte
	line := append(strconv.AppendUint(size[:0], uint64(n), 16), '\r', '\n')
	start := chunkHead - len(line)
	copy(b[start:], line)
	copy(b[chunkHead+n:], "\r\n")
	return b[start : chunkHead+n+chunkTail]
}

// back takes those headers of the API's that pass. None repeats the credential, or leads past the route.
func (x *exchange) back(from http.Header) http.Header {
	h := judge.Back(from, true)
	delete(h, "Location")
	for name, values := range h {
		values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return x.way.key.In(name, v) })
		if h[name] = values; len(values) == 0 {
			delete(h, name)
		}
	}
	return h
}

// headOf is the head of an answer. http.Header has it that no value breaks out of its line.
func headOf(status int, h http.Header) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	h.Write(&b)
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}
