package inspect

import (
	"errors"

	"github.com/agent-init/agent-init/pkg/broker/judge"
)

// known is what a request was judged by that goes on, beside its head: each policy that comes is asked again.
type known struct {
	x           *exchange
	path, query string // as they came
	onward      string // the query as it goes on
	shown       bool   // a credential was put on
	packed      bool   // it is a WebSocket with extensions, whose bytes are not counted as they are
}

// learn notes what a request is known by, which is judged by the policy in force.
func (x *exchange) learn(k *known) *no {
	var n *no
	_ = errors.As(x.server.flows.Learn(x, func() { x.known = k }), &n)
	return n
}

// End ends a request.
func (x *exchange) End(why error) { x.cancel(why) }

// Judge judges a request by another policy. Before it goes on there is nothing to end: it is judged then.
func (x *exchange) Judge(t *table) error {
	k := x.known
	if k == nil || t == x.table {
		return nil
	}
	i, r := t.find(x.conn.place), x.asked
	if i == nil || i.Plain != x.entry.Plain {
		return changed(x.conn.name + " is not inspected any more")
	}
	admitted, refused := t.rules[i].Judge(r.Method, k.path, k.query, r.Header)
	if refused == nil && len(r.Trailer) > 0 {
		_, refused = t.rules[i].Judge(r.Method, k.path, k.query, r.Trailer)
	}
	if refused != nil {
		return changed(refused.Text)
	}
	if n := k.credential(t); n != nil {
		return n
	}
	if i.Observe {
		x.body.most.Store(0)
		return nil
	}
	if n := k.body(admitted); n != nil {
		return n
	}
	return nil
}

// credential judges what was put on, and what was not.
func (k *known) credential(t *table) *no {
	x := k.x
	was, is := x.key, t.keys[x.conn.place]
	switch {
	case was == nil && is == nil:
		return nil
	case is == nil && k.shown:
		return changed("no credential is put on for " + x.conn.name + " any more")
	case is == nil:
		return nil
	case was != nil && k.shown:
		if refused := judge.Stands(&was.route, &is.route); refused != nil {
			return changed(refused.Text)
		}
		return nil
	}
	shown, _, n := is.judge(x.server.config.Token, x.asked.Header.Clone(), x.asked.Trailer, k.query)
	switch {
	case n != nil:
		return changed(n.Text)
	case shown:
		return changed("a credential is put on for " + x.conn.name + " now")
	}
	return nil
}

// body judges the body as far as it has come, and bounds the rest.
func (k *known) body(a *judge.Admitted) *no {
	x, b := k.x, k.x.body
	none := b.from == nil && b.held == nil
	size := max(b.sent.Load(), x.asked.ContentLength)
	switch {
	case a.MaxUpload < 0 && (size > 0 || b.from != nil && !b.whole.Load()):
		return changed(a.Rule + " admits no body here (max_upload=SIZE does)")
	case a.MaxUpload > 0 && size > a.MaxUpload:
		return changed("the body is larger than max_upload of " + a.Rule)
	case a.MaxUpload != 0 && (b.from != nil && !b.counted || k.packed):
		return changed("bytes were not counted as max_upload of " + a.Rule + " has it")
	}
	b.most.Store(a.MaxUpload)
	var refused *judge.Refusal
	kind := x.asked.Header.Get("Content-Type")
	switch looked := none || b.held != nil; {
	case a.GraphQL != "" && looked:
		refused = judge.GraphQL(kind, k.onward, b.held)
	case a.GraphQL != "":
		return changed("the body was not judged as a query of GraphQL")
	case !a.Form || none || b.form != nil:
	case b.held != nil:
		var f *judge.Form
		if f, refused = judge.NewForm(kind); refused == nil && f != nil {
			if refused = f.Judge(b.held); refused == nil {
				refused = f.End()
			}
		}
	default:
		if f, bad := judge.NewForm(kind); bad != nil || f != nil {
			return changed("the body was not looked into for another method")
		}
	}
	if refused != nil {
		return changed(refused.Text)
	}
	return nil
}

func changed(why string) *no { return refusal("policy", "the policy has changed: "+why) }
