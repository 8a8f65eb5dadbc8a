// Package broker is a reverse proxy that holds the credentials of APIs. Who asks it holds none: it judges each request,
// puts the credential of the route on, and asks the one host that the route leads to.
package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// MemoryLimit is for debug.SetMemoryLimit of a process that is a proxy. Without it, the garbage of what many requests hold
// takes as much again.
const MemoryLimit = 48 << 20

// Config is what a proxy works with. Owner may be nil; all else is needed. The process besides has to send what package
// log gets nowhere: net/http writes there what a server sends unasked, and that may repeat the credential.
type Config struct {
	Token string   // what a caller shows as its key
	UIDs  []uint32 // who may ask; none: anybody who has the token

	// Owner says whose socket the client's end of a connection is.
	Owner func(client, server netip.AddrPort) (uid uint32, err error)

	// Dial connects to a host of a route's.
	Dial func(ctx context.Context, host string, port uint16) (net.Conn, error)

	// Proxy and DialProxy are those of inspect.Config.
	Proxy     func(host string, port uint16) (authorization string, is bool)
	DialProxy func(ctx context.Context, host string, port uint16) (net.Conn, error)

	// Spend asks whether a request fits the limits of its route, and has it hold so many tokens until it is recorded. It is
	// called for routes that have some.
	Spend func(ctx context.Context, route string, hold int64) (refused string, err error)

	// Leaf is the certificate that is shown for an inspected name. It may be nil where there is none.
	Leaf func(name string) (*tls.Certificate, error)

	Record func(Event) // takes one event for each request, when it is over
	Log    *slog.Logger
}

// Loaded is what changes while a proxy serves.
type Loaded struct {
	Routes      []route.Route
	Inspected   []route.Inspected
	Credentials map[string][]byte // by the names of routes
	Roots       *x509.CertPool
	By          string // how connections go out: with another way, or other roots, none that is there carries another request
}

// Event is one request.
type Event struct {
	Name                       string // the inspected name, "" on a route that has a path of its own
	Port                       uint16 // likewise
	Rule                       string // likewise: FILE:LINE of the entry that decided
	Observed                   string // likewise: why it would have been refused, were the name not one to observe
	Route, Method, Path, Model string
	Status                     int    // 0: there was no answer
	Refused                    string // why, "" if it went on
	Sent, Received             int64  // bytes of the bodies
	TokensIn, TokensOut        int64
	Held                       int64 // tokens, of the route's limit, until now
	FirstByte, Took            time.Duration
	Fingerprint                string // of the credential
	UID                        uint32 // who asked
}
