package broker

import (
	"errors"

	"github.com/agent-init/agent-init/pkg/broker/inspect"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// Handed is a connection of the agent's to an inspected name.
type Handed = inspect.Handed

// Inspect serves a connection to an inspected name. It waits for nothing, and has the connection from here on.
func (p *Proxy) Inspect(h Handed) { p.inspected.Inspect(h) }

func newInspected(c Config, all *room.Room) *inspect.Server {
	return inspect.New(inspect.Config{
		Token: c.Token, Dial: c.Dial, Proxy: c.Proxy, DialProxy: c.DialProxy, Room: all, Spend: c.Spend, Leaf: c.Leaf,
		Record: func(e inspect.Event) {
			c.Record(Event{
				Name: e.Name, Port: e.Port, Rule: e.Rule, Route: e.Route, Method: e.Method, Path: e.Path, Status: e.Status,
				Refused: e.Refused, Observed: e.Observed, Sent: e.Sent, Received: e.Received,
				FirstByte: e.FirstByte, Took: e.Took, Fingerprint: e.Fingerprint, UID: e.UID,
			})
		},
	})
}

// loadInspected serves the inspected names of l.
func (p *Proxy) loadInspected(l Loaded) error {
	for _, i := range l.Inspected {
		if !i.Plain && p.config.Leaf == nil {
			return errors.New("there is no authority for inspected names")
		}
	}
	return p.inspected.Load(inspect.Loaded{
		Inspected: l.Inspected, Routes: l.Routes, Credentials: l.Credentials, Roots: l.Roots, By: l.By,
	})
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
