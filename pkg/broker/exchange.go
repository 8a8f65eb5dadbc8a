package broker

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// exchange is one request and its answer.
type exchange struct {
	proxy    *serving
	way      *way
	endpoint *route.Endpoint
	caller   *caller
	w        http.ResponseWriter
	control  *http.ResponseController
	forget   func() bool // that the client may hang up
	began    time.Time
	event    Event

	shown       bool   // the token
	path, query string // below the route, as they came
	base        string // what the caller has in front of that
	goal        goal   // where it goes on
	hold        *room.Hold
	body        *held
	up          *upload // nil: the body was read whole
	told        judge.Told
	ctx         context.Context
	cancel      context.CancelCauseFunc
	known       known
}

// ServeHTTP judges a request and sends it on, or refuses it.
func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	x := &exchange{
		proxy: s, caller: r.Context().Value(callerKey{}).(*caller), w: w, control: http.NewResponseController(w), began: time.Now(),
	}
	x.caller.head.Over()
	x.hold = s.bodies.room.Hold(x.giveWay)
	x.body = &held{hold: x.hold}
	x.event.Method, x.event.UID = r.Method, x.caller.uid
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	x.watch(r)
	defer x.leave()
	n := x.admit(s.flows.Begin(x), r)
	if n == nil {
		n = x.judge(r)
	}
	if n == nil && x.endpoint.Body.Streams() {
		x.upload(r)
		return
	}
	var out *http.Request
	if n == nil {
		var err error
		if out, err = x.request(r); err != nil {
			n = unclear(err)
		}
	}
	if n != nil {
		x.refuse(n)
		return
	}
	x.forward(out)
}

// watch ends the exchange if the client hangs up. net/http notices that once the body is read, and takes an error of
// reading the body for it.
func (x *exchange) watch(r *http.Request) {
	x.forget = context.AfterFunc(r.Context(), func() { x.cancel(errHungUp) })
}

// giveWay ends the exchange, of which others need the room. A body that was sent is worth less than that.
func (x *exchange) giveWay() {
	if !x.body.forget() {
		x.cancel(badBody(room.ErrFull))
	}
}

// admit says who may ask, and finds the route.
func (x *exchange) admit(t table, r *http.Request) *no {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	x.event.Path = path
	_, server := ends(x.caller.Conn)
	if fault := asked(r, server); fault != "" {
		return refusal("host", fault)
	}
	name, below, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	x.path, x.query = "/"+below, withoutKey(query)
	w, known := t[name]
	if known {
		x.way = w
		x.event.Route, x.event.Path = name, x.path
		x.base = "http://" + strings.ToLower(r.Host) + "/" + name
		if w.registry != nil {
			x.path = w.registry.Spelled(x.path)
		}
	}
	x.shown = shows(x.proxy.config.Token, r, query)
	switch {
	case !(known && x.unshown(&w.route)) && !x.shown:
		return refusal("token",
			"the key is not the token that agent-init gave the agent for this route")
	case !known:
		return refusal("route", "the broker has no route /"+name[:min(len(name), 64)]+
			"/; the policy's section broker: lists them")
	case upgrades(r.Header):
		return refusal("upgrade", "the broker speaks HTTP/1.1 alone, no WebSocket")
	}
	return nil
}

// judge says whether what is asked may pass.
func (x *exchange) judge(r *http.Request) *no {
	if err := x.hold.Take(x.ctx, room.Head(r)); err != nil {
		return badBody(err)
	}
	rt := &x.way.route
	e, refused := judge.Head(rt, r.Method, x.path, x.query, r.Header)
	if x.endpoint = e; refused != nil {
		return refused
	}
	if e.Body == route.Empty && r.ContentLength != 0 {
		return refusal("body", "this request has no body in the API")
	}
	if n := x.learn(func() { x.known = newKnown(x, r) }); n != nil {
		return n
	}
	if e.Body.Streams() {
		x.event.Sent = max(0, r.ContentLength)
		return x.spend(r.Context())
	}
	bodies := x.proxy.bodies
	err := x.body.read(x.ctx, r, bodies.wait, x.control.SetReadDeadline)
	if err != nil {
		return badBody(err)
	}
	x.event.Sent = int64(len(x.body.data))
	if x.told, err = bodies.judge(x.ctx, rt, e, x.path, x.body); err != nil {
		return badBody(err)
	}
	x.event.Model = x.told.Model
	if n := x.learn(func() { x.known.told = x.told }); n != nil {
		return n
	}
	return x.spend(r.Context())
}

// spend asks whether the request fits the route's limits.
func (x *exchange) spend(ctx context.Context) *no {
	rt := &x.way.route
	n := uncounted(rt, x.endpoint.Body, x.told)
	if n == nil {
		n = x.proxy.config.Fits(ctx, rt, x.body.most)
	}
	if n == nil {
		x.event.Held = x.body.most
	}
	return n
}

// uncounted refuses what would tell nobody its tokens, where these are limited.
func uncounted(rt *route.Route, body route.Body, told judge.Told) *no {
	if rt.Limits.TokensPerDay == 0 || body != route.Chat || told.CountsUsage {
		return nil
	}
	return refusal("budget", "the policy limits tokens_per_day of this route, and the request asks for a stream "+
		"that does not tell its tokens (set stream_options.include_usage)")
}

// count takes what an answer says that it has cost. Of one that ended before it said so, what it has held counts, or an
// estimate: else who hangs up in time pays nothing.
func (x *exchange) count(status int, m *judge.Meter) {
	in, out, told := m.Tokens()
	if !told && status < 300 {
		if in == 0 {
			in = judge.Estimate(x.event.Sent)
		}
		if out == 0 {
			out = max(0, x.event.Held-in)
		}
	}
	x.event.TokensIn, x.event.TokensOut = in, out
}

// unheard counts what a request has held of which the server has the head, and nobody knows what it has come to.
func (x *exchange) unheard() {
	x.event.TokensIn = min(judge.Estimate(x.event.Sent), x.event.Held)
	x.event.TokensOut = x.event.Held - x.event.TokensIn
}

// over records the exchange.
func (x *exchange) over(status int) {
	x.event.Status = status
	x.event.Took = time.Since(x.began)
	if x.up != nil {
		x.event.Sent = x.up.sent.Load()
	}
	if x.way != nil {
		x.event.Fingerprint = x.way.key.Fingerprint
	}
	x.proxy.config.Record(x.event)
}
