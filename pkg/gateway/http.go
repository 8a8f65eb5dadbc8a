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

// exchange is the HTTP on one connection.
type exchange struct {
	c       *conn
	ctx     context.Context // for the leases of later requests
	waiting *pipeline
	up      *sink // nil until connected
	down    *sink
}

// serveHTTP judges a connection by its first request and relays it, judging
// every other request as it comes.
func (c *conn) serveHTTP(ctx context.Context) error {
	x := &exchange{c: c, ctx: context.WithoutCancel(ctx), down: c.toClient()}
	x.waiting = newPipeline(func() { c.client.SetReadDeadline(past) })
	c.client.SetReadDeadline(time.Now().Add(c.s.config.Limits.HeadTime))
	r, err := x.request(nil)
	c.s.conns.judged(c)
	if err != nil {
		var no *refused
		if errors.As(err, &no) {
			c.judge(no.ruling)
			if x.answer(no) {
				c.close(audit.Deny, no.reason())
			}
		}
		return err
	}
	server, err := c.connect(ctx, r.ruling)
	if err != nil {
		return err
	}
	x.up = c.toServer()
	c.relay(server, func() error { return x.requests(r) }, func() error { return x.responses(server) })
	return nil
}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// judged is a request that is let through.
type judged struct {
	*request
	ruling
	text []byte // of the head, as it is to be passed on
}

// refused is a request that is not, which is an error of its ruling's words.
type refused struct {
	*request
	ruling
}

// request reads a request head and judges it.
func (x *exchange) request(began func()) (*judged, error) {
	c := x.c
	n, err := readHead(c.from, began)
	var r *request
	if err == nil {
		r, err = parseRequest(c.from.held()[:n], c.to.Port())
	}
	var why refusal
	if errors.As(err, &why) {
		if r == nil {
			r = &request{}
		}
		if r.method == "CONNECT" && len(c.s.config.Policy().Proxies()) == 0 {
			why = refusedConnect
		}
		d := ruling{name: r.host, port: c.to.Port(), why: why}
		x.record(r, d)
		return nil, &refused{r, d}
	}
	if err != nil {
		return nil, err
	}
	c.client.SetReadDeadline(time.Time{})
	if r.droppable() && c.s.config.Policy().Upgrades(r.host, policy.Port{Proto: policy.TCP, Number: webPort}) == nil {
		r.offers = nil
	}
	text := r.head(c.from.held()[:n])
	if r.last() {
		text = closing(text)
	}
	c.from.take(n)
	var d ruling
	if r.method == "CONNECT" {
		d = c.decideConnect(x.ctx, r.target)
	} else {
		d = c.decide(x.ctx, r.host, r.switches(), false)
	}
	x.record(r, d)
	if !d.allowed {
		return nil, &refused{r, d}
	}
	return &judged{r, d, text}, nil
}

// record writes the one event of a request.
func (x *exchange) record(r *request, d ruling) {
	verdict, count := audit.Deny, &x.c.s.stats.denied
	if d.allowed {
		verdict, count = audit.Allow, &x.c.s.stats.requests
	}
	if !x.c.aside(d.name) {
		count.Add(1)
	}
	reason := d.reason()
	switch {
	case r.offers != nil:
		reason = r.method + ", upgrade to " + strings.Join(r.offers, ", ") + ": " + reason
	case d.via.name != "":
		reason = "CONNECT by way of " + d.via.name + " (" + d.via.rule.String() + "): " + reason
	case r.method != "":
		reason = r.method + ": " + reason
	}
	find := audit.Nobody // of what is allowed, the connection's own event says it
	if verdict == audit.Deny || d.enforce != "" {
		find = x.c.s.config.Find
	}
	by := x.c.findOut(find)
	x.c.s.config.Record(audit.Event{
		Kind: audit.HTTP, Verdict: verdict, Enforce: d.enforce, Name: d.name, IP: x.c.to.Addr().String(), Port: d.port, Proto: "tcp",
		Rule: d.rule.String(), Reason: reason,
	}.By(by))
}

// recordBehind writes the one event of what a client has sent behind a body.
func (x *exchange) recordBehind(r *judged) {
	if !x.c.aside(r.name) {
		x.c.s.stats.denied.Add(1)
	}
	x.c.s.config.Record(audit.Event{
		Kind: audit.HTTP, Verdict: audit.Deny, Name: r.name, IP: x.c.to.Addr().String(), Port: r.port, Proto: "tcp", Rule: r.rule.String(),
		Reason: r.method + ": what followed its body was dropped: a request with a body is the last of its connection",
	}.By(x.c.findOut(x.c.s.config.Find)))
}

// requests is the direction to the server.
func (x *exchange) requests(r *judged) error {
	defer x.waiting.close()
	c := x.c
	for {
		raw, err := x.pass(r)
		if err != nil {
			return err
		}
		switch {
		case raw:
			return c.from.forward(x.up, untilEnd)
		case r.last(): // what was sent meanwhile is for another connection
			return c.from.discard(func() { x.recordBehind(r) })
		}
		r, err = x.request(func() {
			c.client.SetReadDeadline(time.Now().Add(c.s.config.Limits.HeadTime))
		})
		var no *refused
		switch {
		case errors.As(err, &no):
			// The answers to earlier requests come first. If it can't be known
			// where they end, the client gets them and no more.
			if !x.waiting.drain() {
				return &writeError{errFinished}
			}
			if x.answer(no) {
				c.close(audit.Allow, "closed after a refused request")
			}
			return err
		case err != nil:
			return err
		}
	}
}

// pass passes one request on. If the server answers by switching protocols, it
// returns true: whatever follows is passed on as it is.
func (x *exchange) pass(r *judged) (raw bool, err error) {
	if r.expect {
		if !x.waiting.drain() {
			return false, &writeError{errFinished}
		}
		if err := write(x.down, []byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return false, err
		}
		x.waiting.resume()
	}
	if !x.waiting.push(asked{r.method, r.offers, r.last()}) {
		return false, &writeError{errFinished}
	}
	err = write(x.up, r.text)
	r.text = nil // the connection may live long
	switch {
	case err != nil:
		return false, err
	case r.switches():
		// What the client has sent already is another request, or not, as the
		// server decides.
		return x.waiting.settle(x.c.from.fill, func() { x.c.client.SetReadDeadline(time.Time{}) })
	}
	return false, forwardBody(x.c.from, x.up, r.length)
}

// responses is the direction to the client.
func (x *exchange) responses(server *source) error {
	defer x.waiting.close()
	for {
		if len(server.held()) == 0 {
			if err := server.fill(); err != nil {
				return err
			}
		}
		to, was, ok := x.waiting.front()
		switch {
		case !ok:
			return &writeError{errFinished}
		case !was:
			return server.forward(x.down, untilEnd)
		}
		n, err := readHead(server, nil)
		var unclear refusal
		if err != nil && !errors.As(err, &unclear) {
			if len(server.held()) > 0 {
				server.step(x.down, untilEnd)
			}
			return err
		}
		r := response{length: untilEnd}
		if err == nil {
			r = parseResponse(server.held()[:n], to)
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
		text := closing(server.held()[:n])
		server.take(n)
		if err := write(x.down, text); err != nil {
			return err
		}
	} else if err := server.forward(x.down, int64(n)); err != nil {
		return err
	}
	err := forwardBody(server, x.down, r.length)
	var unclear refusal
	switch {
	case errors.As(err, &unclear):
		x.waiting.end()
		return server.forward(x.down, untilEnd)
	case err != nil:
		return err
	}
	if r.interim() {
		return nil
	}
	x.waiting.pop()
	x.c.unclaim()
	if to.last {
		return io.EOF
	}
	return nil
}

// lingerTime is how long the client may take to read that it was refused.
const lingerTime = time.Second

// answer tells the client why no, and waits for it to have read that. It
// returns false if the client can't be told.
func (x *exchange) answer(no *refused) bool {
	c := x.c
	if no.why == refusedNotHTTP || no.why == refusedHTTP2 {
		return false // it would not understand
	}
	c.client.SetDeadline(time.Now().Add(lingerTime))
	if write(x.down, forbidden(no, c.s.config.Policy())) != nil || c.client.CloseWrite() != nil {
		return false
	}
	// Closing with bytes unread would be a reset, and take the answer back.
	for range 16 {
		c.from.take(len(c.from.held()))
		if c.from.fill() != nil {
			break
		}
	}
	return true
}
