// Package judge says what of a request may pass on a route of the broker's. It is pure: no socket, no file, no clock.
//
// All lists are closed: a type or a field that no rule knows is refused, and a header dropped. No body is rewritten,
// since a request that lacks a part can wedge the session of who sent it.
package judge

import (
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// Told is what a body says of itself.
type Told struct {
	Model       string
	Stream      bool // the answer is asked for as a stream
	CountsUsage bool // the answer will say what it has cost

	Rested *Rested // nil: on nothing
}

// Body judges what a request has inside, unpacked. path is the one that Head judged.
func Body(r *route.Route, e *route.Endpoint, path string, body []byte) (Told, *Refusal) {
	if len(body) > route.MaxBody {
		return Told{}, refuse("size", "the body has more than %d bytes", route.MaxBody)
	}
	switch e.Body {
	case route.Opaque:
		return Told{}, nil
	case route.Empty:
		if len(body) > 0 {
			return Told{}, refuse("body", "%s %s has no body", e.Method, e.Path)
		}
		return Told{}, nil
	}
	root, err := parse(body)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "jsontext: ")
		return Told{}, refuse("json", "the body is not JSON that can be judged: %s", quote(why, 200))
	}
	q := &request{route: r, path: path, root: root, rested: &Rested{}}
	told, refused := q.body(e)
	if refused != nil {
		return Told{}, refused // what was read of it counts for nothing
	}
	told.Rested = q.rested
	return told, nil
}

// body judges by the rules of an endpoint. With a refusal, what it tells means nothing.
func (q *request) body(e *route.Endpoint) (Told, *Refusal) {
	switch e.Body {
	case route.Messages, route.CountMessages:
		return q.messages()
	case route.Chat:
		return q.chat()
	case route.Responses:
		return q.responses()
	case route.Generate:
		return q.google("generate")
	case route.CountGenerate:
		return q.google("count")
	case route.Converse:
		return q.converse()
	case route.GitLFS:
		return q.lfs()
	case route.InvokeModel:
		return q.invoke()
	}
	return Told{}, refuse("body", "no rules judge a body of the kind %q", e.Body)
}
