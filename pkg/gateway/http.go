package gateway

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

type exchange struct {
	c       *conn
	ctx     context.Context // for the leases of later requests
	waiting *pipeline
	up      *sink // nil until connected
	down    *sink
}

// serveHTTP relays a connection, judging every request as it comes.
func (c *conn) serveHTTP(ctx context.Context) error {
	x := &exchange{c: c, ctx: context.WithoutCancel(ctx), down: c.toClient()}
	x.waiting = newPipeline(func() { c.client.SetReadDeadline(time.Unix(1, 0)) }) // ends a read at once
	x.hurry()
	r, err := x.request(nil)
	c.s.conns.judged(c)
	if no, ok := errors.AsType[*judged](err); ok {
		c.first = no.ruling
		if x.answer(no) {
			c.close(audit.Deny, no.Error())
		}
	}
	if err != nil {
		return err
	}
	if r.inspected() {
		return c.handOver(ctx, r.ruling, nil)
	}
	server, err := c.connect(ctx, r.ruling)
	if err != nil {
		return err
	}
	x.up = c.toServer()
	c.relay(server, func() error { return x.requests(r) }, func() error { return x.responses(server) })
	return nil
}

// hurry bounds the time for the rest of a head, until relax.
func (x *exchange) hurry() { x.c.client.SetReadDeadline(time.Now().Add(x.c.s.limits.head)) }
func (x *exchange) relax() { x.c.client.SetReadDeadline(time.Time{}) }

// judged is a request and what was decided about it; an error if it is refused.
type judged struct {
	*request
	ruling
	text []byte // of the head, as it is to be passed on; nil if it is the broker's
}

func (x *exchange) request(began func()) (*judged, error) {
	c := x.c
	n, err := readHead(c.from, began)
	r := &request{}
	if err == nil {
		r, err = parseRequest(c.from.held()[:n], c.to.Port())
	}
	if why, ok := errors.AsType[*refusal](err); ok {
		if r.method == "CONNECT" && len(c.s.config.Policy().Proxies) == 0 {
			why = refusedConnect
		}
		return x.judged(&judged{request: r, ruling: ruling{name: r.host, port: c.to.Port(), why: why}})
	}
	if err != nil {
		return nil, err
	}
	x.relax()
	if r.droppable() && c.s.config.Policy().Upgrades(r.host, policy.Port{Proto: policy.TCP, Number: c.to.Port()}) == nil {
		r.offers = nil
	}
	j := &judged{request: r}
	if r.method == "CONNECT" {
		j.ruling = c.decideConnect(x.ctx, r.target)
	} else {
		j.ruling = c.decide(x.ctx, r.host, use{plain: true, switches: r.switches()})
	}
	switch {
	case x.up != nil && j.allowed && (c.otherWay(j.ruling) || j.proxied && j.name != c.first.name):
		j.ruling = j.no(refusedBesideProxy)
	case !j.inspected():
	case x.up != nil: // what comes behind is for the broker, and what came before was not
		j.ruling = j.no(refusedBehind)
	default:
		return j, nil // with its head, and the broker records its requests
	}
	j.text = r.head(c.from.held()[:n])
	c.from.take(n)
	return x.judged(j)
}

// judged writes the one event of a request. A refused one is returned as an error.
func (x *exchange) judged(r *judged) (*judged, error) {
	reason := r.Error()
	switch {
	case r.offers != nil:
		reason = r.method + ", upgrade to " + strings.Join(r.offers, ", ") + ": " + reason
	case r.via.name != "":
		reason = "CONNECT by way of " + r.via.name + " (" + r.via.rule.String() + "): " + reason
	case r.method != "":
		reason = r.method + ": " + reason
	}
	if !r.allowed {
		x.record(audit.Deny, r.ruling, reason)
		return nil, r
	}
	x.record(audit.Allow, r.ruling, reason)
	return r, nil
}

func (x *exchange) record(v audit.Verdict, r ruling, reason string) {
	find := audit.Nobody // of what is allowed, the connection's own event says it
	if v == audit.Deny || r.enforce != "" {
		find = x.c.s.config.Find
	}
	x.c.s.config.Record(audit.Event{Kind: audit.HTTP, Verdict: v, Enforce: r.enforce, Name: r.name, IP: x.c.at.Addr().String(), Port: r.port,
		Proto: "tcp", Rule: r.rule.String(), Reason: reason}.By(x.c.findOut(find)))
}

func (x *exchange) requests(r *judged) error {
	defer x.waiting.end()
	for {
		raw, err := x.pass(r)
		switch {
		case err != nil:
			return err
		case raw:
			return x.c.from.forward(x.up, untilEnd)
		case r.last(): // what was sent meanwhile is for another connection
			return x.c.from.discard(func() {
				r.enforce = ""
				x.record(audit.Deny, r.ruling, r.method+": what followed its body was dropped: a request with a body is the last of its connection")
			})
		}
		if r, err = x.request(x.hurry); err == nil {
			continue
		}
		if no, ok := errors.AsType[*judged](err); ok {
			// The answers to earlier requests come first. If it can't be known
			// where they end, the client gets them and no more.
			if !x.waiting.drain() {
				return errFinished
			}
			if x.answer(no) {
				x.c.close(audit.Allow, "closed after a refused request")
			}
		}
		return err
	}
}

// pass passes one request on. It returns true if the server switches protocols: whatever follows is passed on as it is.
func (x *exchange) pass(r *judged) (raw bool, err error) {
	if r.expect {
		if !x.waiting.drain() {
			return false, errFinished
		}
		if err := write(x.down, []byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return false, err
		}
		x.waiting.resume()
	}
	if !x.waiting.push(asked{r.method, r.offers, r.last()}) {
		return false, errFinished
	}
	err = write(x.up, r.text)
	r.text = nil // the connection may live long
	switch {
	case err != nil:
		return false, err
	case r.switches():
		// What the client has sent already is another request, or not, as the server decides.
		return x.waiting.settle(x.c.from.fill, x.relax)
	}
	return false, forwardBody(x.c.from, x.up, r.length)
}

func (x *exchange) responses(server *source) error {
	defer x.waiting.end()
	for {
		if len(server.held()) == 0 {
			if err := server.fill(); err != nil {
				return err
			}
		}
		to, was, ok := x.waiting.front()
		switch {
		case !ok:
			return errFinished
		case !was:
			return server.forward(x.down, untilEnd)
		}
		n, err := readHead(server, nil)
		r := response{length: untilEnd}
		if err == nil {
			r = parseResponse(server.held()[:n], to)
		} else if _, unclear := errors.AsType[*refusal](err); !unclear {
			server.flush(x.down)
			return err
		}
		switch {
		case r.switched:
			if err := server.forward(x.down, int64(n)); err != nil {
				return err
			}
			x.waiting.switched()
			return server.forward(x.down, untilEnd)
		case r.status == 101:
			return refusedSwitch
		}
		if err := x.respond(server, n, r, to); err != nil {
			return err
		}
	}
}

// respond passes one response on, of which the head has n bytes.
func (x *exchange) respond(server *source, n int, r response, to asked) error {
	if r.length == untilEnd {
		x.waiting.end()
		return server.forward(x.down, untilEnd)
	}
	if to.last && !r.interim() {
		text := rewrite(server.held()[:n], true)
		server.take(n)
		if err := write(x.down, text); err != nil {
			return err
		}
	} else if err := server.forward(x.down, int64(n)); err != nil {
		return err
	}
	err := forwardBody(server, x.down, r.length)
	if _, unclear := errors.AsType[*refusal](err); unclear {
		x.waiting.end()
		return server.forward(x.down, untilEnd)
	}
	if err != nil || r.interim() {
		return err
	}
	x.waiting.pop()
	x.c.unclaim(1) // the last one stays for as long as the connection
	if to.last {
		return io.EOF
	}
	return nil
}

// answer tells the client why no, and waits for it to have read that. It returns false if the client can't be told.
func (x *exchange) answer(no *judged) bool {
	c := x.c
	if no.why == refusedNotHTTP || no.why == refusedHTTP2 {
		return false // it would not understand
	}
	return c.tell(x.down, forbidden(no, c.s.config.Policy()))
}
