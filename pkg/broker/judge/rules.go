package judge

import (
	"bytes"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

const maxModel = 256 // bytes of a model's name; an ARN of Bedrock's is the longest

// request is a body that is judged by the rules of an API. Its methods are what the rules of all APIs have in common.
type request struct {
	route *route.Route
	path  string // the canonical one
	root  value

	rested *Rested // nil: it is judged anew
}

// rests notes what the verdict rests on.
func (q *request) rests(note func(*Rested)) {
	if q.rested != nil {
		note(q.rested)
	}
}

// strange refuses a member that no rule knows, of the body itself or of something in it.
func (q *request) strange(name, of []byte) *Refusal {
	if of == nil {
		return refuse("field", "field %s is not known to agent-init; route %s lets it pass with fields: [%[1]s]",
			quote(name, 64), q.route.Name)
	}
	return refuse("field", "field %s of %s is not known to agent-init; route %s lets it pass with fields: [%[1]s]",
		quote(name, 64), quote(of, 64), q.route.Name)
}

// named says whether the route lets a field pass that the rules don't know.
func (q *request) named(name []byte) bool {
	is := slices.Contains(q.route.Fields, string(name))
	if is {
		q.rests(func(r *Rested) { note(r, &r.fields, string(name)) })
	}
	return is
}

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
		q.rests(func(r *Rested) { note(r, &r.models, model) })
		return nil
	}
	return refuse("model", "model %s is not on the list of route %s (models)", quote(model, 64), q.route.Name)
}

// provided refuses what the provider would run, unless the route names it: its type, or the family of that type. The
// family is "" for a type that the rules don't know.
func (q *request) provided(kind []byte, family string) *Refusal {
	tools := q.route.ProviderTools
	if slices.Contains(tools, string(kind)) || family != "" && slices.Contains(tools, family) {
		q.rests(func(r *Rested) { note(r, &r.tools, tool{string(kind), family}) })
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

// schema refuses a reference to another document, which some readers of schemas fetch.
func (q *request) schema(v value) *Refusal {
	for name, member := range v.members() {
		switch string(name) {
		case "$ref", "$dynamicRef", "$recursiveRef":
			if remote(member.str()) {
				return refuse("content", "a schema by its address is not allowed, since the provider could fetch it")
			}
		}
		if refusal := q.schema(member); refusal != nil {
			return refusal
		}
	}
	for item := range v.items() {
		if refusal := q.schema(item); refusal != nil {
			return refusal
		}
	}
	return nil
}

// remote says whether a text begins as an address does.
func remote(s []byte) bool {
	s = bytes.TrimLeft(s[:min(len(s), 64)], " \t\r\n")
	scheme, _, ok := bytes.Cut(s, []byte(":"))
	if !ok {
		return bytes.HasPrefix(s, []byte("//"))
	}
	switch strings.ToLower(string(scheme)) {
	case "http", "https", "ftp", "file", "gs", "s3", "ws", "wss":
		return true
	}
	return false
}
