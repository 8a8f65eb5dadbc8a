package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// answering begins an answer.
func (x *exchange) answering() *answer {
	a := &answer{x: x, ctx: x.ctx, moved: x.hold.Moved}
	a.silence = time.AfterFunc(x.proxy.idle, func() { x.cancel(errSilent) })
	return a
}

// forward asks the API and passes its answer on.
func (x *exchange) forward(out *http.Request) {
	a := x.answering()
	defer a.silence.Stop()
	if x.way.registry != nil {
		var ok bool
		if out, ok = x.consult(a, out); !ok {
			return
		}
	}
	a.ask(out)
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
		x.refuse(n)
		return
	}
	x.goal.key.Blank(x.event.Method, resp)
	resp.Request = nil // the transport holds the answer for as long as it lasts, and has another of this
	x.body.answered()
	x.event.FirstByte = time.Since(x.began)
	if s := resp.StatusCode; s < 200 || s > 299 && s < 400 || s > 599 {
		resp.Body.Close()
		x.refuse(strange(x.goal, s))
		return
	}
	if resp.StatusCode == http.StatusUnauthorized && x.way.route.Shape == route.GitShape {
		// git would ask for a password, which nobody has.
		resp.Body.Close()
		x.refuse(refusal("server", fmt.Sprintf("%s wants another credential for this repository than route %s has",
			x.goal.up.place.host, x.way.route.Name)))
		return
	}
	if x.endpoint.Answer == route.LFSAnswer && resp.StatusCode < 300 {
		a.batch(resp)
		return
	}
	a.pass(resp)
}

// strange is about a status that no client may act on.
func strange(g goal, status int) *no {
	return refusal("server", fmt.Sprintf("%s answered with status %d, and the broker follows no redirect",
		g.up.place.host, status))
}

// pass passes an answer on, and ends the exchange.
func (a *answer) pass(resp *http.Response) {
	defer resp.Body.Close()
	x := a.x
	a.meter = judge.NewMeter(x.endpoint.Body, resp.Header.Get("Content-Type"))
	defer a.untilEnd()()
	err := a.send(resp)
	// A server may end its answer at TLS's close_notify, which comes before the connection's end.
	if n := x.ended(); n != nil {
		x.event.Refused, err = n.What+": "+n.Text, n
	} else if err != nil && a.ctx.Err() == nil {
		x.proxy.config.Log.Debug("an answer of a route ended early", "route", x.event.Route)
	}
	x.count(resp.StatusCode, a.meter)
	if err != nil {
		x.abort(resp.StatusCode)
	}
	x.over(resp.StatusCode)
}

// untilEnd has writes fail once ctx is over: the client may not read what comes.
func (a *answer) untilEnd() (stop func() bool) {
	a.passing = true
	return context.AfterFunc(a.ctx, func() { a.x.control.SetWriteDeadline(time.Unix(1, 0)) })
}

// answer passes one answer on.
type answer struct {
	x       *exchange
	ctx     context.Context
	silence *time.Timer
	meter   *judge.Meter
	passing bool      // what is written is what a server says: nothing of it follows the end of ctx
	moved   func(int) // what is held goes; the answer is the broker's own
}

// send writes the head, and then the body as it comes.
func (a *answer) send(resp *http.Response) error {
	head := a.x.back(resp.Header)
	resp.Header = nil // the transport holds the answer for as long as it lasts
	bodiless := a.x.event.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent
	if !bodiless && resp.ContentLength >= 0 {
		head.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	if err := a.begin(resp.StatusCode, head); err != nil || bodiless {
		return err
	}
	if err := a.copy(resp.Body); err != nil {
		return err
	}
	if resp.ContentLength >= 0 && a.x.event.Received != resp.ContentLength {
		return errTold
	}
	return nil
}

// begin writes the head of an answer.
func (a *answer) begin(status int, head http.Header) error {
	h := a.x.w.Header()
	h["Content-Type"], h["Date"] = nil, nil // else net/http adds some
	maps.Copy(h, head)
	a.x.w.WriteHeader(status)
	return a.write(nil)
}

// write passes b on at once.
func (a *answer) write(b []byte) error {
	a.x.control.SetWriteDeadline(time.Now().Add(a.x.proxy.idle))
	if a.passing && a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	if _, err := a.x.w.Write(b); err != nil {
		return err
	}
	return a.x.control.Flush()
}

// copy passes each part on as it comes.
func (a *answer) copy(body io.Reader) error {
	var buf buffer.Buffer
	defer buf.Free()
	for {
		b := buf.Bytes()
		n, err := body.Read(b)
		a.silence.Reset(a.x.proxy.idle)
		if n > 0 {
			a.x.event.Received += int64(n)
			a.meter.Write(b[:n])
			if err := a.write(b[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		buf.Fit(n, n == len(b))
	}
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
