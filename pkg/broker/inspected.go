package broker

import (
	"errors"

	"github.com/agent-init/agent-init/pkg/broker/inspect"
	"github.com/agent-init/agent-init/pkg/route"
)

// Handed is a connection of the agent's to an inspected name.
type Handed = inspect.Handed

// Inspect serves a connection to an inspected name. It waits for nothing, and has the connection from here on.
func (p *Proxy) Inspect(h Handed) { p.inspected.Inspect(h) }

// loadInspected serves the inspected names of l.
func (p *Proxy) loadInspected(l Loaded) error {
	for _, i := range l.Inspected {
		if !i.Plain && p.config.Leaf == nil {
			return errors.New("there is no authority for inspected names")
		}
	}
	return p.inspected.Load(l)
}

// served are the routes that have a path of their own.
func served(all []route.Route) (routes []route.Route) {
	for _, r := range all {
		if r.Inspects == "" {
			routes = append(routes, r)
		}
	}
	return routes
}
