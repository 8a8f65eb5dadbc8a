package judge

import (
	"reflect"
	"slices"

	"github.com/agent-init/agent-init/pkg/route"
)

// Rested is what the verdict about a body has rested on: which entries of a route's lists let something in it pass. The
// body itself is not kept. Its size is bounded, whatever a body holds.
type Rested struct {
	models   []string // that are asked for
	fields   []string // that a route's list let pass
	tools    []tool   // likewise
	exact    string   // a model that a list has to name exactly; "": none
	anyModel bool     // the provider chooses models
	anyTool  bool     // a route with any tools let something pass
	uploads  bool     // large files
	more     bool     // than is noted: any change of the lists may be about those
}

// tool is what provided was asked about.
type tool struct{ kind, family string }

// maxRested bounds each list of Rested. A body names one model, and a fallback or two.
const maxRested = 64

func note[T comparable](r *Rested, list *[]T, one T) {
	switch {
	case slices.Contains(*list, one):
	case len(*list) == maxRested:
		r.more = true
	default:
		*list = append(*list, one)
	}
}

// Judge judges the body by what a later policy has for its route, which was first judged by was.
func (s *Rested) Judge(was, r *route.Route) *Refusal {
	q := &request{route: r}
	if s.more && !reflect.DeepEqual([][]string{was.Models, was.Fields, was.ProviderTools}, [][]string{r.Models, r.Fields, r.ProviderTools}) {
		return refuse("policy", "the lists of route %s have changed", r.Name)
	}
	for _, model := range s.models {
		if refusal := q.allowed(model); refusal != nil {
			return refusal
		}
	}
	for _, field := range s.fields {
		if !q.named([]byte(field)) {
			return refuse("field", "field %s is not let pass by route %s any more", quote(field, 64), r.Name)
		}
	}
	for _, t := range s.tools {
		if refusal := q.provided([]byte(t.kind), t.family); refusal != nil {
			return refusal
		}
	}
	switch {
	case s.exact != "" && !q.listed(s.exact):
		return refuse("model", "model %s is not named by route %s any more", quote(s.exact, 200), r.Name)
	case s.anyModel && len(r.Models) > 0:
		return refuse("model", "the provider chooses models, and route %s has a list of them", r.Name)
	case s.anyTool && len(r.ProviderTools) == 0:
		return refuse("tool", "route %s lets no tool of the provider's pass any more", r.Name)
	case s.uploads && !r.Git.Write:
		return refuse("repo", "route %s uploads no large files any more", r.Name)
	}
	return nil
}

// Stands says whether what was judged by was may go on under r, as far as both differ in what Head, Rested and Push do not
// ask about. A member of Route that nobody has named here, or there, stands only if it is the same.
func Stands(was, r *route.Route) *Refusal {
	a, b := *was, *r
	for _, x := range []*route.Route{&a, &b} {
		// Of these, a request under way is judged anew by what is known of it.
		x.To, x.Endpoints, x.Open, x.Models, x.ProviderTools, x.Fields, x.Git, x.Query = "", nil, false, nil, nil, nil, route.Git{}, nil
		x.Limits = route.Limits{} // the keeper has counted it
		// These say nothing of what may pass.
		x.Optional, x.Private, x.Shape, x.Env, x.TokenPrefix, x.LoginHost, x.Harmless, x.Files = false, false, "", nil, "", "", nil, nil
	}
	// These may grow.
	grown := less(was.Headers, r.Headers) && more(was.Packages.Allow, r.Packages.Allow) && less(r.Packages.Deny, was.Packages.Deny) &&
		r.Packages.MinAge <= was.Packages.MinAge && (r.Inspects == "" || less(was.Query, r.Query))
	a.Headers, b.Headers = nil, nil
	a.Packages, b.Packages = route.Packages{Registry: was.Packages.Registry}, route.Packages{Registry: r.Packages.Registry}
	if !grown || !reflect.DeepEqual(a, b) {
		return refuse("policy", "route %s has changed", r.Name)
	}
	return nil
}

// less says whether b has all of a.
func less(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// more is less where an empty list stands for anything.
func more(a, b []string) bool { return len(b) == 0 || len(a) > 0 && less(a, b) }
