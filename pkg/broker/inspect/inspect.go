// Package inspect is the proxy for inspected names: TLS ends here, each request is judged, and goes on to the host of its
// name over a connection that proves it. Nothing passes because it was not understood: what is no request of HTTP's goes
// nowhere.
package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/broker/underway"
	"github.com/agent-init/agent-init/pkg/route"
)

// Config is what a server works with. All of it is needed, but for Leaf where no name is one of TLS.
type Config struct {
	Token string // what a caller shows where a credential is to be put on

	// Dial connects to the host of an inspected name, or of a route.
	Dial func(ctx context.Context, host string, port uint16) (net.Conn, error)

	// Proxy says whether plain HTTP to a host is asked of a proxy, by requests with whole URLs, and what that is shown as a
	// credential; nil: it never is. DialProxy connects to the proxy that is there for a host.
	Proxy     func(host string, port uint16) (authorization string, is bool)
	DialProxy func(ctx context.Context, host string, port uint16) (net.Conn, error)

	// Room is what requests hold: their heads, and what is read of bodies before it goes on.
	Room *room.Room

	// Spend asks whether a request fits the limits of the route whose credential it gets, and has it hold so many tokens
	// until it is recorded. It is called for routes that have some.
	Spend func(ctx context.Context, route string, hold int64) (refused string, err error)

	// Leaf is what is shown for an inspected name.
	Leaf func(name string) (*tls.Certificate, error)

	Record func(Event) // takes one event for each request, when it is over, and for each connection without one
}

// Loaded is what changes while a server serves. Of Routes, those that inspect a name count.
type Loaded struct {
	Inspected   []route.Inspected
	Routes      []route.Route
	Credentials map[string][]byte // by the names of routes
	Roots       *x509.CertPool
	By          string // how connections go out: with another way, or other roots, none that is there carries another request
}

// Handed is a connection of a client's that asked for an inspected name.
type Handed struct {
	Conn *net.TCPConn
	Name string         // as the gate has read it
	To   netip.AddrPort // where it was to go
	Read []byte         // what the gate has read of it
	UID  uint32         // whose it is
}

// Event is one request, or a connection that had none.
type Event struct {
	Name                string // the inspected name
	Port                uint16
	Rule                string // FILE:LINE of the entry that decided
	Route               string // whose credential was put on
	Method, Path, Model string
	Status              int    // 0: there was no answer
	Refused             string // why, "" if it went on
	Observed            string // why it would have been refused, were the name not one to observe
	Sent, Received      int64  // bytes of the bodies
	TokensIn, TokensOut int64
	Held                int64 // tokens, of the route's limit, until now
	FirstByte, Took     time.Duration
	Fingerprint         string // of the credential
	UID                 uint32 // who asked
}

// Server serves the inspected names that are loaded.
type Server struct {
	config  Config
	idle    time.Duration // how long a request may be silent in both directions
	tls     *tls.Config
	flows   underway.Set[*table, *exchange] // requests under way
	turns   *turns
	arrived chan net.Conn // those whose handshake is over

	ctx  context.Context // ends with Serve
	stop context.CancelFunc

	loading sync.Mutex // holds Load

	mu       sync.Mutex
	ended    bool
	conns    map[*conn]struct{}
	users    map[uint32]use // of conns and flows
	upstream map[*tracked]struct{}
	all      sync.WaitGroup // whatever runs
}

// New returns a server without any name.
func New(c Config) *Server {
	s := &Server{
		config: c, idle: route.IdleTime, turns: newTurns(), arrived: make(chan net.Conn),
		conns: map[*conn]struct{}{}, users: map[uint32]use{}, upstream: map[*tracked]struct{}{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.tls = s.newTLS()
	s.flows.Load(&table{transport: s.newTransport(nil)})
	return s
}
