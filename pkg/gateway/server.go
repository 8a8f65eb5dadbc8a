package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/race"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Config is what a Server works with. All but Beside, Direct, Hand, Proxied, Own, Locate and Monitor is needed.
type Config struct {
	// Policy returns the policy in force, for each decision: the same pointer until the policy changes.
	Policy func() *policy.Policy

	// LeasedTo says whether addr is leased to that very name, in lower case and without
	// a trailing dot. An error refuses the connection. It is called concurrently.
	LeasedTo func(ctx context.Context, name string, addr netip.AddrPort) (bool, error)

	// Beside returns where else on addr's port that very name has leases: another of these addresses is connected to if
	// addr does not answer. It is called concurrently. Nil: nowhere.
	Beside func(ctx context.Context, name string, addr netip.AddrPort) ([]netip.Addr, error)

	// Monitor lets a name through that has no permission or no lease, and records both verdicts.
	Monitor bool

	// Direct says whether a connection to addr may pass without a look inside: because the policy allows the address
	// itself, or it is leased to name, on a port that the gate can't look into. An error refuses the connection. Nil:
	// the kernel lets such connections pass by themselves, and those that come here are refused.
	Direct func(ctx context.Context, addr netip.AddrPort) (name string, ok bool, err error)

	// Hand hands a connection to an inspected name over to the broker, whose it is if there is no error. Nil: there is no
	// broker, and such connections are refused.
	Hand func(context.Context, Handed) error

	// Proxied connects by the upstream proxy of the policy, to a name at an address that is leased to it. Nil: there is no
	// such way, and connections that would have to go there are refused.
	Proxied func(ctx context.Context, name string, addr netip.AddrPort) (*net.TCPConn, error)

	// Own are addresses of this machine that names are answered with. A connection to one of them goes on to where Locate
	// finds the name that is inside.
	Own    []netip.Addr
	Locate func(ctx context.Context, name string) ([]netip.Addr, error)

	// Record takes one event per connection at its end, and one per HTTP request.
	Record audit.Recorder

	// Find says who has made a connection that is refused, before it is cut: behind it,
	// the client may be gone. FindAllowed returns who says it of what is passed on, meanwhile; nil if nobody may look now.
	Find        audit.Finder
	FindAllowed func() audit.Finder

	// Aside says that connections to name, or to addr, are not to be counted now.
	Aside func(name string, addr netip.Addr) bool

	Connections int // open at once: a newer one takes the place of one that is still, or is reset
	Log         *slog.Logger
}

// limits bounds what clients may use up, besides Config.Connections.
type limits struct {
	sniffing int           // connections that are not judged yet: the oldest makes room
	hello    time.Duration // for the whole ClientHello
	head     time.Duration // for a whole HTTP request head
	dial     time.Duration // for the onward connection
	held     time.Duration // for Config.LeasedTo, and for Config.Direct
	hand     time.Duration // for Config.Hand
	idle     time.Duration // either way; a peer that vanishes is noticed by TCP keep-alive
	still    time.Duration // either way, until the connection may have to make room for another
}

// maxBeside bounds attempts to connect beside the first of each connection. Each takes a descriptor.
const maxBeside = 256

// Stats counts connections since the Server was made.
type Stats struct {
	Allowed, Refused uint64
	Open             int // now
}

// Server is the name gate. It is made by New.
type Server struct {
	config   Config
	limits   limits
	dial     func(context.Context, netip.AddrPort) (*net.TCPConn, error)
	original func(*net.TCPConn) (netip.AddrPort, error) // where a redirected connection was going to
	conns    registry
	room     race.Room // for attempts to connect beside the first of a connection

	allowed, refused atomic.Uint64
}

// New returns a Server that doesn't accept yet.
func New(c Config) (*Server, error) {
	if c.Policy == nil || c.LeasedTo == nil {
		return nil, errors.New("gateway: a policy and a way to ask about leases are needed")
	}
	return &Server{
		config: c,
		limits: limits{sniffing: 512, hello: 5 * time.Second, head: 10 * time.Second, dial: 10 * time.Second, held: 2 * time.Second,
			hand: 2 * time.Second, idle: 2 * time.Hour, still: 3 * time.Second},
		room:     make(race.Room, max(1, min(maxBeside, c.Connections/8))),
		dial:     dial,
		original: OriginalDestination,
		conns:    registry{open: make(map[*conn]struct{}), most: c.Connections},
	}, nil
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	return Stats{Allowed: s.allowed.Load(), Refused: s.refused.Load(), Open: len(s.conns.all())}
}

// Serve accepts connections until parent ends, which is no error, or a listener fails. Then it closes the listeners and
// resets every connection. The listeners are of plain TCP (SetMultipathTCP(false)), for its original destination.
func (s *Server) Serve(parent context.Context, listeners []net.Listener) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var work sync.WaitGroup
	for _, l := range listeners {
		work.Go(func() {
			own := unmap(l.Addr().(*net.TCPAddr).AddrPort())
			err := budget.Accept(ctx, l, s.config.Log, func(c net.Conn) { s.add(ctx, c.(*net.TCPConn), own, &work) })
			cancel(fmt.Errorf("accept connections to the name gate: %w", err))
		})
	}
	work.Go(func() { s.sweep(ctx) })
	<-ctx.Done()
	for _, l := range listeners {
		l.Close()
	}
	for _, c := range s.conns.shut() {
		c.end(audit.Info, "the gate stopped")
	}
	work.Wait()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

func (s *Server) add(ctx context.Context, client *net.TCPConn, own netip.AddrPort, work *sync.WaitGroup) {
	ctx, stop := context.WithCancel(ctx)
	work.Add(1)
	c := &conn{s: s, began: time.Now(), client: client, work: work, stop: stop, users: 1}
	if peer, ok := client.RemoteAddr().(*net.TCPAddr); ok {
		c.peer = unmap(peer.AddrPort())
	}
	evicted, why, ok := s.conns.add(c, s.limits)
	if evicted != nil {
		evicted.end(audit.Deny, why.Error())
	}
	if ok {
		go c.serve(ctx, own)
		return
	}
	c.end(audit.Deny, refusedTooMany.Error())
	c.done()
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// sweep ends connections that were idle for too long. One clock for all: a
// timer for each would cost more than the rest of an idle connection.
func (s *Server) sweep(ctx context.Context) {
	tick := time.NewTicker(max(time.Millisecond, min(time.Minute, s.limits.idle/4)))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		for _, c := range s.conns.all() {
			if c.still(now) > s.limits.idle {
				c.end(audit.Allow, "idle for too long")
			}
		}
	}
}

// registry knows the connections that are open.
type registry struct {
	mu       sync.Mutex
	most     int // open at once; 0 once the Server has stopped
	open     map[*conn]struct{}
	sniffing []*conn // not judged yet, oldest first
}

// add takes c in. If there are too many, or too many have not been judged, one is returned, to be ended by the caller: of
// all, the one that has moved nothing for longest; of those that are not judged, the oldest, since a client that says
// nothing costs only others that say nothing either. If all have been judged and move, c is not taken in.
func (r *registry) add(c *conn, l limits) (evicted *conn, why *refusal, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= r.most {
		evicted, why = r.stillest(l.still), refusedStill
	}
	if evicted == nil && len(r.sniffing) > 0 && (len(r.open) >= r.most || len(r.sniffing) >= l.sniffing) {
		evicted, why = r.sniffing[0], refusedEvicted
	}
	if r.most == 0 || evicted == nil && len(r.open) >= r.most {
		return nil, nil, false
	}
	r.sniffing = slices.DeleteFunc(r.sniffing, func(o *conn) bool { return o == evicted })
	delete(r.open, evicted)
	r.open[c] = struct{}{}
	r.sniffing = append(r.sniffing, c)
	return evicted, why, true
}

// stillest is the connection that has moved nothing for longest, nil if none is still for least.
func (r *registry) stillest(least time.Duration) (found *conn) {
	now := time.Now()
	for c := range r.open {
		if still := c.still(now); still >= least {
			found, least = c, still
		}
	}
	return found
}

func (r *registry) judged(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sniffing = slices.DeleteFunc(r.sniffing, func(o *conn) bool { return o == c })
}

func (r *registry) remove(c *conn) {
	r.judged(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *registry) all() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.open))
}

// shut is all, and takes no more connections from then on.
func (r *registry) shut() []*conn {
	r.mu.Lock()
	r.most = 0
	r.mu.Unlock()
	return r.all()
}
