package policy

import (
	"reflect"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// route is what a ceiling leaves of a route of the broker, nil if that is nothing. It has to be one of the same name in
// the ceiling, but for what may be less: a field that is not named here has to be the same.
func (c *Ceiling) route(w written) (left *written, cut *Cut) {
	cut = &Cut{Source: w.at[""], Text: w.Name}
	i := slices.IndexFunc(c.routes, func(top written) bool { return top.Name == w.Name })
	switch {
	case c.rebuilt:
		return &w, nil
	case i >= 0:
	case c.entries == "any" && c.routes == nil:
		return c.undenied(w, cut)
	default:
		cut.Why = "none of its routes has this name"
		return nil, cut
	}
	top := c.routes[i]
	cut.By = top.at[""].String()
	r, why, lost := routeWithin(w.Route, top.Route)
	if why != "" {
		cut.Why = why
		return nil, cut
	}
	w.Route = r
	if lost == "" {
		return &w, nil
	}
	cut.Why, cut.Left = "it admits less of "+lost, "the rest of the route"
	return &w, cut
}

// undenied is for a ceiling that only denies: a route is left unless it leads to what is denied for good.
func (c *Ceiling) undenied(w written, cut *Cut) (left *written, _ *Cut) {
	for _, h := range w.hosts {
		if d := c.policy.denies(h, h.Ports[0]); d != nil {
			cut.By, cut.Why = d.Source.String(), "it leads to "+h.Target()+", which is denied for good"
			return nil, cut
		}
	}
	return &w, nil
}

// routeWithin is r as far as top admits it; why says why nothing is left, and lost what is less.
func routeWithin(r, top route.Route) (left route.Route, why, lost string) {
	rest, most := r, top
	for _, same := range []*route.Route{&rest, &most} { // what is compared by itself, or opens nothing
		same.Models, same.ProviderTools, same.Fields, same.Headers, same.Query, same.Endpoints, same.Credential = nil, nil, nil, nil, nil, nil, nil
		same.Add, same.Env, same.Optional, same.Limits = nil, nil, false, route.Limits{}
		same.Git, same.Packages = route.Git{}, route.Packages{Registry: same.Packages.Registry}
	}
	if !reflect.DeepEqual(rest, most) {
		return r, "it has another route of this name (" + different(rest, most) + ")", ""
	}
	for _, h := range r.Add {
		if !slices.Contains(top.Add, h) {
			return r, "the header " + h.Name + " is put on otherwise there, or not at all", ""
		}
	}
	r.Add = top.Add
	for _, l := range []struct {
		what string
		do   func() (lost, none bool)
	}{
		{"credential", func() (bool, bool) { return lessOf(&r.Credential, top.Credential) }},
		{"allow", func() (bool, bool) { return lessOf(&r.Endpoints, top.Endpoints) }},
		{"headers", func() (bool, bool) { return less(&r.Headers, top.Headers), false }},
		{"query", func() (bool, bool) { return less(&r.Query, top.Query), false }},
		{"provider_tools", func() (bool, bool) { return less(&r.ProviderTools, top.ProviderTools), false }},
		{"fields", func() (bool, bool) { return less(&r.Fields, top.Fields), false }},
		{"models", func() (bool, bool) { return matching(&r.Models, top.Models, coversModel) }},
		{"repos", func() (bool, bool) { return matching(&r.Git.Repos, top.Git.Repos, coversRepo) }},
		{"branches", func() (bool, bool) { return matching(&r.Git.Branches, top.Git.Branches, coversBranch) }},
		{"packages", func() (bool, bool) { return matching(&r.Packages.Allow, top.Packages.Allow, covers) }},
		{"git", func() (bool, bool) { return replace(&r.Git.Write, r.Git.Write && top.Git.Write), false }},
		{"limits", func() (bool, bool) { return limit(&r.Limits, top.Limits), false }},
	} {
		is, none := l.do()
		if none {
			return r, "it admits nothing of what " + l.what + " has here", ""
		}
		if is && lost == "" {
			lost = l.what
		}
	}
	r.Packages.MinAge = max(r.Packages.MinAge, top.Packages.MinAge)
	for _, p := range top.Packages.Deny {
		if !slices.Contains(r.Packages.Deny, p) {
			r.Packages.Deny = append(slices.Clone(r.Packages.Deny), p)
		}
	}
	return r, "", lost
}

// different names the field in which two routes differ.
func different(a, b route.Route) string {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return x.Type().Field(i).Tag.Get("json")
		}
	}
	return ""
}

// less leaves those of a list that top has as well. It says whether any is gone.
func less[T any](list *[]T, top []T) (lost bool) {
	was := len(*list)
	*list = slices.DeleteFunc(slices.Clone(*list), func(v T) bool {
		return !slices.ContainsFunc(top, func(t T) bool { return reflect.DeepEqual(t, v) })
	})
	return len(*list) < was
}

// lessOf is less of a list of which at least one has to be left, if there was any.
func lessOf[T any](list *[]T, top []T) (lost, none bool) {
	had := len(*list) > 0
	lost = less(list, top)
	return lost, had && len(*list) == 0
}

// matching leaves those patterns of which one of top surely has all. No pattern is any: then it is those of top.
func matching(list *[]string, top []string, covers func(top, p string) bool) (lost, none bool) {
	switch {
	case len(top) == 0:
		return false, false
	case len(*list) == 0:
		*list = top
		return false, false
	}
	was := len(*list)
	*list = slices.DeleteFunc(slices.Clone(*list), func(p string) bool {
		return !slices.ContainsFunc(top, func(t string) bool { return t == p || covers(t, p) })
	})
	return len(*list) < was, len(*list) == 0
}

// limit has no limit be higher than in top, where 0 is none.
func limit(l *route.Limits, top route.Limits) (lost bool) {
	was := *l
	if n := top.RequestsPerMinute; n > 0 && (l.RequestsPerMinute == 0 || l.RequestsPerMinute > n) {
		l.RequestsPerMinute = n
	}
	if n := top.TokensPerDay; n > 0 && (l.TokensPerDay == 0 || l.TokensPerDay > n) {
		l.TokensPerDay = n
	}
	return was != *l && was != route.Limits{}
}

// covers says whether all that a pattern p has, top has as well: the star of one stands for that of the other, and for
// any text. It may say no where that is so, and never yes where it isn't.
func covers(top, p string) bool { return globWithin(top, p, "") }

func coversRepo(top, p string) bool { return globWithin(top, p, "/") }

// coversModel: what is more than a model passes by its exact name alone.
func coversModel(top, p string) bool { return covers(top, p) && !route.MoreThanModel(p) }

func coversBranch(top, p string) bool {
	whole := func(s string) string {
		if strings.HasPrefix(s, "refs/") {
			return s
		}
		return "refs/heads/" + s
	}
	return coversRepo(whole(top), whole(p))
}

// globWithin matches p, whose stars only a star can have, against top, whose stars have no text with a character of but.
func globWithin(top, p, but string) bool {
	fits := make([]bool, len(p)+1) // the part of top so far has p up to here
	fits[0] = true
	for i := range len(top) {
		next := make([]bool, len(p)+1)
		if top[i] == '*' {
			for j, is := range fits {
				next[j] = is || j > 0 && next[j-1] && !strings.ContainsRune(but, rune(p[j-1]))
			}
		} else {
			for j := range len(p) {
				next[j+1] = fits[j] && p[j] != '*' && p[j] == top[i]
			}
		}
		fits = next
	}
	return fits[len(p)]
}
