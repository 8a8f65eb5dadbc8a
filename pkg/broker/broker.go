// Package broker is a reverse proxy that holds the credentials of APIs. Who asks it holds none: it judges each request,
// puts the credential of the route on, and asks the one host that the route leads to.
package broker

import (
	"log/slog"
	"net/netip"

	"github.com/agent-init/agent-init/pkg/broker/inspect"
)

// MemoryLimit is for debug.SetMemoryLimit of a process that is a proxy. Without it, the garbage of what many requests hold
// takes as much again.
const MemoryLimit = 48 << 20

// Config is what a proxy works with. Owner may be nil, and so may Leaf where no name is inspected; Room is the proxy's own.
// All else is needed. The process besides has to send what package log gets nowhere: net/http writes there what a server
// sends unasked, and that may repeat the credential.
type Config struct {
	inspect.Config
	UIDs []uint32 // who may ask; none: anybody who has the token

	// Owner says whose socket the client's end of a connection is.
	Owner func(client, server netip.AddrPort) (uid uint32, err error)

	Log *slog.Logger
}

// Loaded is what changes while a proxy serves.
type Loaded = inspect.Loaded

// Event is one request. On a route that has a path of its own, there are no Name, Port, Rule and Observed.
type Event = inspect.Event
