package main

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

	asked []string // what may be, on a route of one's own; nil: it leads to a model's API
}

func checkedRoutes(routes []route.Route) []checkedRoute {
	var all []checkedRoute
	for _, r := range routes {
		c := checkedRoute{r.Name, r.To, r.Authentication(), r.Optional, r.ProviderTools, r.Models, r.Limits, nil}
		for _, e := range r.Endpoints {
			if !r.AsksModels() {
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
	w.Line("route %s: %s%s", r.Name, r.To, optional)
	w.Row("credential", "%s", r.Authentication)
	if r.asked != nil {
		w.Row("asked", "%s", strings.Join(r.asked, ", "))
	} else {
		w.Row("tools", "%s", cmp.Or(strings.Join(r.ProviderTools, ", "), "none of the provider's"))
		w.Row("models", "%s", cmp.Or(strings.Join(r.Models, ", "), "any"))
	}
	w.Row("limits", "%v", r.Limits)
}
