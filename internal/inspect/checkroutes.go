package inspect

import (
	"cmp"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/route"
)

// checkedRoute is a route of the broker in what check prints. Whether its credential is there, check does not look.
type checkedRoute struct {
	Name           string       `json:"name"`
	To             string       `json:"to"`
	Authentication string       `json:"authentication"` // none, or where the credential is, and where it goes
	Optional       bool         `json:"optional,omitempty"`
	ProviderTools  []string     `json:"provider_tools,omitempty"`
	Models         []string     `json:"models,omitempty"` // none: any
	Limits         route.Limits `json:"limits,omitzero"`

	Git      *route.Git      `json:"git,omitempty"`
	Packages *route.Packages `json:"packages,omitempty"`
	Inspects string          `json:"inspects,omitempty"` // NAME:PORT of the requests that the credential is put on
	Add      []route.Header  `json:"add,omitempty"`      // put on besides

	asked []string // what may be, on a route of one's own; nil: it leads to a model's API
}

func checkedRoutes(routes []route.Route) []checkedRoute {
	var all []checkedRoute
	for _, r := range routes {
		c := checkedRoute{Name: r.Name, To: r.To, Authentication: r.Authentication(), Optional: r.Optional,
			ProviderTools: r.ProviderTools, Models: r.Models, Limits: r.Limits, Inspects: r.Inspects, Add: r.Add}
		switch {
		case r.Inspects != "":
		case r.ServesGit():
			c.Git = &r.Git
		case r.Packages.Registry != "":
			c.Packages = &r.Packages
		case !r.AsksModels():
			for _, e := range r.Endpoints {
				c.asked = append(c.asked, e.Method+" "+e.Path)
			}
		}
		all = append(all, c)
	}
	return all
}

func (r checkedRoute) write(w *text.Screen) {
	optional := ""
	if r.Optional {
		optional = ", if the credential is there"
	}
	orAny := func(list []string) string { return cmp.Or(strings.Join(list, ", "), "any") }
	if r.Inspects != "" {
		w.Line("route %s: onto the requests to %s%s", r.Name, r.Inspects, optional)
	} else {
		w.Line("route %s: %s%s", r.Name, r.To, optional)
	}
	w.Row("credential", "%s", r.Authentication)
	for _, h := range r.Add {
		w.Row("besides", "%s: %s", h.Name, h.Value)
	}
	switch {
	case r.Inspects != "":
		return
	case r.Git != nil && r.Git.Write:
		w.Row("repos", "%s, to read and to push", orAny(r.Git.Repos))
		w.Row("branches", "%s", cmp.Or(strings.Join(r.Git.Branches, ", "), "any ref"))
	case r.Git != nil:
		w.Row("repos", "%s, to read", orAny(r.Git.Repos))
	case r.Packages != nil:
		w.Row("packages", "%s", packages(r.Packages))
	case r.asked != nil:
		w.Row("asked", "%s", strings.Join(r.asked, ", "))
	default:
		w.Row("tools", "%s", cmp.Or(strings.Join(r.ProviderTools, ", "), "none of the provider's"))
		w.Row("models", "%s", orAny(r.Models))
	}
	w.Row("limits", "%v", r.Limits)
}
