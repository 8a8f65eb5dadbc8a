package inspect

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// The agent chooses what it asks for, so that what is kept of it is bounded.
const (
	maxSteps    = 10_000 // segments of all paths that are told apart
	maxDepth    = 16     // segments of one
	maxSiblings = 5      // that stand beside each other. More of them become a star
	cutPath     = 256    // bytes of a path, of which an event has no more
)

// varied is a segment that names one of many things: a number, a UUID, a hash.
var varied = lazy.Pattern(`^([0-9]+|[0-9a-fA-F-]{36}|[0-9a-f]{7,64})$`)

// requestPlace is where requests were refused: a name, the port on it, and whether they asked for WebSockets.
type requestPlace struct {
	name   string
	port   policy.Port
	socket bool
}

// step is a segment of paths that were refused.
type step struct {
	below map[string]*step
	ends  map[string]*refusals // by method: of paths that end here
}

// refusals are those that come to the same entry.
type refusals struct {
	count uint64
	first time.Time
	by    string
}

func (r *refusals) join(other *refusals) {
	if r.count == 0 || other.first.Before(r.first) {
		r.first, r.by = other.first, other.by
	}
	r.count += other.count
}

// request takes in a request to an inspected name that the broker refused, or would have.
func (s *Proposals) request(e audit.Event) {
	port := policy.Port{Proto: policy.TCP, Number: e.Port}
	i := route.FindInspected(s.policy.Settings.Inspected, e.Name, e.Port)
	if i == nil || s.policy.Way(e.Name, port) != policy.Inspected || !s.policy.Decide(e.Name, port).Allowed {
		return
	}
	// A star that was asked for would stand for anything.
	if strings.Trim(e.Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || !strings.HasPrefix(e.Path, "/") || strings.Contains(e.Path, "*") {
		return
	}
	at := requestPlace{e.Name, port, strings.HasPrefix(e.Reason, "websocket:")}
	segments := foldSegments(e.Path)
	entry := at.entry(s.policy, e.Method, "/"+strings.Join(segments, "/"))
	switch denied, lacking := at.judged(s.rulesOf(i), i, entry, e); {
	case denied:
		s.put(s.denied, e.Name+" "+e.Method+" "+e.Path, e.Name, e)
	case lacking && segments[0] != "**":
		s.keepRequest(at, segments, e)
	}
}

// rulesOf are the rules of a name, also of one that is only observed.
func (s *Proposals) rulesOf(i *route.Inspected) *judge.Rules {
	if s.rules[i] == nil {
		strict := *i
		strict.Observe = false
		s.rules[i] = judge.NewRules(&strict)
	}
	return s.rules[i]
}

// judged says whether a rule denies a request, or else whether it passes with the entry, and not without.
func (at requestPlace) judged(rules *judge.Rules, i *route.Inspected, entry *policy.Rule, e audit.Event) (denied, lacking bool) {
	h := http.Header{}
	if at.socket {
		h = http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	}
	path := e.Path
	if len(path) >= cutPath { // within an escape, perhaps
		path = path[:strings.LastIndexByte(path, '/')+1] + "x"
	}
	_, refusal := rules.Judge(e.Method, path, "", h)
	if refusal == nil || refusal.What == "denied" {
		return refusal != nil, false
	}
	_, refusal = judge.Inspected(&route.Inspected{Name: at.name, Allow: []route.Request{*entry.Request}, Within: i.Within}, e.Method, path, "", h)
	return false, refusal == nil
}

// entry is the one that lets requests pass.
func (at requestPlace) entry(p *policy.Policy, methods, path string) *policy.Rule {
	q := &route.Request{Methods: strings.Split(methods, ","), Path: path, WebSocket: at.socket}
	if methods == http.MethodPost && strings.HasSuffix(path, "/graphql") {
		q.GraphQL = route.GraphQLQuery
	}
	at.bound(p, q)
	r := &policy.Rule{Name: at.name, Ports: []policy.Port{at.port}, Request: q}
	r.HTTP = at.port != policy.HTTP && p.Plain(at.name, at.port)
	return r
}

// bound has an entry keep to what another one says of bodies that is about the same path, by other methods.
func (at requestPlace) bound(p *policy.Policy, q *route.Request) {
	i := route.FindInspected(p.Settings.Inspected, at.name, at.port.Number)
	if i == nil {
		return
	}
	writes := slices.ContainsFunc(q.Methods, func(m string) bool { return m != http.MethodGet && m != http.MethodHead })
	for _, by := range i.Allow {
		only := route.Inspected{Allow: []route.Request{{Path: by.Path}}}
		if _, refusal := judge.Inspected(&only, http.MethodGet, q.Path, "", http.Header{}); refusal != nil {
			continue
		}
		q.GraphQL = cmp.Or(q.GraphQL, by.GraphQL)
		if by.MaxUpload > 0 && q.MaxUpload == 0 && writes { // it would let what only reads have a body
			q.MaxUpload = by.MaxUpload
		}
	}
}

// foldSegments are those of a path, with a star for what names one of many things.
func foldSegments(path string) []string {
	segments := strings.Split(path[1:], "/")
	if len(path) >= cutPath {
		segments[len(segments)-1] = "**"
	}
	if len(segments) > maxDepth {
		segments = append(segments[:maxDepth-1], "**")
	}
	for i, segment := range segments {
		if varied().MatchString(segment) {
			segments[i] = "*"
		}
	}
	return segments
}

// keepRequest counts a request where its path ends.
func (s *Proposals) keepRequest(at requestPlace, segments []string, e audit.Event) {
	here := s.requests[at]
	if here == nil {
		here = &step{}
		s.requests[at] = here
	}
	for _, segment := range segments {
		next := here.below[segment]
		if next == nil {
			if s.steps++; s.steps > maxSteps {
				if len(s.more) < maxLeftOut {
					s.more[at.name+" "+e.Method+" "+e.Path] = true
				}
				return
			}
			next = &step{}
			if here.below == nil {
				here.below = map[string]*step{}
			}
			here.below[segment] = next
		}
		here = next
	}
	here.end(e.Method, &refusals{1 + e.Suppressed, e.Time, Asked(e)})
}

func (t *step) end(method string, r *refusals) {
	if t.ends == nil {
		t.ends = map[string]*refusals{}
	}
	if t.ends[method] == nil {
		t.ends[method] = &refusals{}
	}
	t.ends[method].join(r)
}

// join takes in another step as if they were one.
func (t *step) join(other *step) {
	for method, r := range other.ends {
		t.end(method, r)
	}
	for segment, next := range other.below {
		if t.below == nil {
			t.below = map[string]*step{}
		}
		if t.below[segment] == nil {
			t.below[segment] = &step{}
		}
		t.below[segment].join(next)
	}
}

// fold makes a star of segments that are many. Those of the first level say what is asked for, and stay.
func (t *step) fold(depth int) {
	if depth > 0 && len(t.below) > maxSiblings {
		star := &step{}
		for _, segment := range slices.Sorted(maps.Keys(t.below)) {
			star.join(t.below[segment])
		}
		name := "*"
		if t.below["**"] != nil || len(star.ends) > 0 && len(star.below) > 0 { // as deep as they like: a tree of files
			name, star = "**", star.flat()
		}
		t.below = map[string]*step{name: star}
	}
	for _, next := range t.below {
		next.fold(depth + 1)
	}
}

// flat is what ends at a step, and anywhere below it.
func (t *step) flat() *step {
	all := &step{}
	for method, r := range t.ends {
		all.end(method, r)
	}
	for _, next := range t.below {
		all.join(next.flat())
	}
	return all
}

// each calls do with each pattern, and what ends there.
func (t *step) each(path string, do func(path string, ends map[string]*refusals)) {
	if len(t.ends) > 0 {
		do(path, t.ends)
	}
	for segment, next := range t.below {
		next.each(path+"/"+segment, do)
	}
}

// requestLines are the entries that would have let requests pass, in any order.
func (s *Proposals) requestLines() (lines []suggestion) {
	for at, top := range s.requests {
		top.fold(0)
		top.each("", func(path string, ends map[string]*refusals) {
			all := refusals{}
			for _, r := range ends {
				all.join(r)
			}
			methods := slices.SortedFunc(maps.Keys(ends), func(a, b string) int {
				return cmp.Or(methodOrder(a)-methodOrder(b), cmp.Compare(a, b))
			})
			line := s.policy.Tried(at.entry(s.policy, strings.Join(methods, ","), path), netip.Addr{}, at.port)
			if line == "" {
				return
			}
			if len(lines) >= maxSuggestions {
				s.more[line] = true
				return
			}
			lines = append(lines, suggestion{Line: line, Group: groupOf(at.name), Count: all.count, First: all.first, By: all.by, name: at.name})
		})
	}
	return lines
}

// methodOrder puts the usual methods first, in the order in which people name them.
func methodOrder(method string) int {
	if i := slices.Index(commonMethods, method); i >= 0 {
		return i
	}
	return len(commonMethods)
}
