package broker

import (
	"context"
	"errors"
	"net/http"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/route"
)

// known is all that a request was judged by, for as long as it is under way: each policy that comes is asked again.
type known struct {
	way                 *way // nil: nothing is known yet
	method, path, query string
	content             http.Header // what the head says of the body
	body                route.Body
	to                  string // of the endpoint, or of a registry's file
	told                judge.Told
	push                *judge.Push // nil: it is none, or not read
}

func newKnown(x *exchange, r *http.Request) known {
	k := known{way: x.way, method: r.Method, path: x.path, query: x.query, content: http.Header{}, body: x.endpoint.Body, to: x.endpoint.To}
	for _, name := range []string{"Content-Type", "Content-Encoding"} {
		if v := r.Header[name]; v != nil {
			k.content[name] = v
		}
	}
	return k
}

// unshown says whether who calls need not show the token on a route.
func (x *exchange) unshown(rt *route.Route) bool {
	return rt.Open && (rt.Keyless || x.caller.known())
}

// learn adds to what is known of a request, which is judged by the policy in force.
func (x *exchange) learn(note func()) *no {
	var n *no
	if err := x.proxy.flows.Learn(x, note); err != nil && !errors.As(err, &n) {
		n = refusal("policy", err.Error())
	}
	return n
}

// Judge judges a request under way by another policy: all that was asked when it began is asked again.
func (x *exchange) Judge(t table) error {
	k := &x.known
	if k.way == nil || t[k.way.route.Name] == k.way {
		return nil
	}
	was := &k.way.route
	w := t[was.Name]
	switch {
	case w == nil:
		return changed("this route is no more")
	case !x.shown && !x.unshown(&w.route):
		return changed("the token has to be shown on this route")
	}
	e, refused := judge.Head(&w.route, k.method, k.path, k.query, k.content)
	if refused == nil {
		refused = judge.Stands(was, &w.route)
	}
	if refused == nil && k.told.Rested != nil {
		refused = k.told.Rested.Judge(was, &w.route)
	}
	if refused == nil && k.push != nil {
		refused = k.push.Judge(&w.route)
	}
	if refused != nil {
		return changed(refused.Text)
	}
	if had, has := k.way.to(k.to), w.to(k.to); has.up == nil || has.up.place != had.up.place || has.prefix != had.prefix || e.Body != k.body {
		return changed("this route leads elsewhere")
	}
	if n := uncounted(&w.route, e.Body, k.told); n != nil && k.told.Rested != nil { // else the body is not read yet
		return n
	}
	return nil
}

// End ends a request that the policy does not allow any more.
func (x *exchange) End(why error) { x.cancel(why) }

func changed(why string) *no { return refusal("policy", "the policy has changed: "+why) }

// ended is why the policy has ended the request, nil if it has not.
func (x *exchange) ended() (n *no) {
	_ = errors.As(context.Cause(x.ctx), &n)
	return n
}

// leave is called once, when a request is over.
func (x *exchange) leave() {
	x.forget()
	x.body.drop()
	x.cancel(nil)
	x.hold.End()
	x.proxy.flows.Over(x)
	x.proxy.under.Done()
}
