package judge

import (
	"bytes"
	"slices"

	"github.com/agent-init/agent-init/pkg/route"
)

const maxModel = 256 // bytes of a model's name; an ARN of Bedrock's is the longest

// request is a body that is judged by the rules of an API. Its methods are what the rules of all APIs have in common.
type request struct {
	route *route.Route
	path  string // the canonical one
	root  value
}

// fields refuses a body that isn't an object, and fields that neither the rules of its API know nor the route names.
func fields[T any](q *request, known map[string]T) *Refusal {
	if q.root.kind() != object {
		return refuse("json", "the body is not an object")
	}
	for name, field := range q.root.members() {
		if _, ok := known[string(name)]; !ok && !field.none() && !q.named(name) {
			return refuse("field", "field %s is not known to agent-init; route %s lets it pass with fields: [%[1]s]",
				quote(name, 64), q.route.Name)
		}
	}
	return nil
}

// members judges the members of an object by a rule, and by what its API lets any object have. Others pass if they are
// plain values, unless the rule is closed, or they could name a place. A server that is written in Go takes a name in any
// case, and the last of those that are alike: a known name in another spelling is refused, too.
func (q *request) members(v value, what []byte, r rule, common map[string]look,
	judge func(how look, name []byte, v value) *Refusal) *Refusal {
	if v.kind() != object {
		return refuse("content", "%s is not an object", quote(what, 64))
	}
	for name, member := range v.members() {
		how, ok := r.members[string(name)]
		if !ok {
			how, ok = common[string(name)]
		}
		if !ok && !member.none() && !q.named(name) && (r.closed || !member.scalar() || placing(name) ||
			remote(member.str()) || respelt(name, r.members) || respelt(name, common)) {
			return q.strange(name, what)
		}
		if refusal := judge(how, name, member); refusal != nil {
			return refusal
		}
	}
	return nil
}

// strange refuses a member of something within the body that no rule knows.
func (q *request) strange(name, of []byte) *Refusal {
	return refuse("field", "field %s of %s is not known to agent-init; route %s lets it pass with fields: [%[1]s]",
		quote(name, 64), quote(of, 64), q.route.Name)
}

// named says whether the route lets a field pass that the rules don't know.
func (q *request) named(name []byte) bool { return slices.Contains(q.route.Fields, string(name)) }

// flag is a field that is true, false, null or absent. Some servers take "true" and 1 for true, so these are refused.
func (q *request) flag(name string) (bool, *Refusal) {
	switch v := q.root.get(name); v.kind() {
	case 't':
		return true, nil
	case 'f', null, absent:
		return false, nil
	}
	return false, refuse("field", "field %s is neither true nor false", name)
}

// model is the name in a field that says which model is asked, if the route allows that one.
func (q *request) model(v value) (string, *Refusal) {
	name := v.str()
	odd := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(name) == 0 || len(name) > maxModel || bytes.ContainsFunc(name, odd) {
		return "", refuse("model", "the model is not the name of one")
	}
	return string(name), q.allowed(string(name))
}

// allowed refuses a model that is not on the list of the route, and one that is more than a model.
func (q *request) allowed(model string) *Refusal {
	if q.searches(model) {
		return refuse("model", "model %s searches or runs something by itself; route %s lets it pass with its exact name "+
			"in models, as in models: ['*', %[1]s]", quote(model, 64), q.route.Name)
	}
	if len(q.route.Models) == 0 || route.Match(q.route.Models, model) {
		return nil
	}
	return refuse("model", "model %s is not on the list of route %s (models)", quote(model, 64), q.route.Name)
}

// provided refuses what the provider would run, unless the route names it: its type, or the family of that type. The
// family is "" for a type that the rules don't know.
func (q *request) provided(kind []byte, family string) *Refusal {
	tools := q.route.ProviderTools
	if slices.Contains(tools, string(kind)) || family != "" && slices.Contains(tools, family) {
		return nil
	}
	if family == "" {
		return refuse("tool", "a tool of the type %s is not known to agent-init; "+
			"route %s lets it pass with provider_tools: [%[1]s]", quote(kind, 64), q.route.Name)
	}
	return refuse("tool", "%s is run by the provider, which could fetch or keep what it is told; "+
		"route %s lets it pass with provider_tools: [%s]", quote(kind, 64), q.route.Name, family)
}

// inline says whether a URL has its content in itself. Only the exact spelling counts: a server may take others for a
// name or a path.
func inline(url []byte) bool { return bytes.HasPrefix(url, []byte("data:")) }
