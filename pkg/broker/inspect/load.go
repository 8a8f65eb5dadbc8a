package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/buffer"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/onward"
	"github.com/agent-init/agent-init/pkg/route"
)

// place is a name on a port.
type place struct {
	name string
	port uint16
}

func (p place) String() string { return net.JoinHostPort(p.name, strconv.Itoa(int(p.port))) }

// table is what serves at a time. A request keeps that of its beginning, for as long as each later one allows it.
type table struct {
	names     map[place]*route.Inspected
	wildcards map[place]*route.Inspected
	rules     map[*route.Inspected]*judge.Rules
	keys      map[place]*key // what is put on
	roots     *x509.CertPool
	by        string
	transport *onward.Transport
}

// find is the entry for a name, nil if it is not inspected on that port. The closest one counts.
func (t *table) find(p place) *route.Inspected {
	if i := t.names[p]; i != nil {
		return i
	}
	for above, ok := p.name, true; ok; _, above, ok = strings.Cut(above, ".") {
		if i := t.wildcards[place{above, p.port}]; i != nil {
			return i
		}
	}
	return nil
}

const (
	maxIdle        = 256 // connections to all servers that nobody uses
	maxIdleOfOne   = 64
	continueTime   = time.Second // for a server that doesn't know Expect: 100-continue
	rememberedTLS  = 256         // sessions with servers, so that a handshake is short
	upstreamBuffer = 32 << 10
)

var (
	errGone   = errors.New("the policy has changed: this is not allowed any more")
	errEnding = errors.New("the broker ends")
)

// Load serves l from now on. What l does not allow ends: connections of names that are not inspected any more, and
// requests under way that no rule allows now. With an error all stays as it was.
func (s *Server) Load(l Loaded) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	old := s.flows.Policy()
	next := &table{
		names: map[place]*route.Inspected{}, wildcards: map[place]*route.Inspected{}, rules: map[*route.Inspected]*judge.Rules{},
		keys: map[place]*key{}, roots: l.Roots, by: l.By,
	}
	for _, i := range l.Inspected {
		list := next.names
		if i.Wildcard {
			list = next.wildcards
		}
		at := place{i.Name, i.Port}
		if list[at] != nil {
			return fmt.Errorf("%s is inspected in two ways", at)
		}
		list[at], next.rules[&i] = &i, judge.NewRules(&i)
	}
	if err := next.takeKeys(l); err != nil {
		return err
	}
	if old.roots != nil && l.Roots != nil && old.roots.Equal(l.Roots) && old.by == l.By {
		next.transport = old.transport
	} else {
		next.transport = s.newTransport(l.Roots)
	}
	s.flows.Load(next)
	if old.transport != next.transport {
		old.transport.CloseIdleConnections()
	}
	s.shrink(next)
	return nil
}

// takeKeys has the routes that inspect a name put their credentials on there.
func (t *table) takeKeys(l Loaded) error {
	for _, r := range l.Routes {
		if r.Inspects == "" {
			continue
		}
		host, port, err := net.SplitHostPort(r.Inspects)
		n, badPort := strconv.ParseUint(port, 10, 16)
		at := place{host, uint16(n)}
		i := t.find(at)
		switch {
		case err != nil || badPort != nil || i == nil:
			return fmt.Errorf("route %s: %s is no inspected name", r.Name, r.Inspects)
		case t.keys[at] != nil:
			return fmt.Errorf("route %s: another one inspects %s, too", r.Name, r.Inspects)
		}
		if t.keys[at], err = newKey(r, l.Credentials[r.Name]); err != nil {
			return fmt.Errorf("route %s: %w", r.Name, err)
		}
		if i.Plain && t.keys[at].credential.Secret() && !r.Plaintext {
			return fmt.Errorf("route %s: its credential would go over plain http", r.Name)
		}
	}
	return nil
}

// newTransport has the connections to all servers.
func (s *Server) newTransport(roots *x509.CertPool) *onward.Transport {
	sessions := tls.NewLRUClientSessionCache(rememberedTLS)
	all := onward.NewTransport(roots, s.dial)
	all.Tune(func(t *http.Transport) {
		t.Proxy = proxyOf
		t.MaxIdleConns, t.MaxIdleConnsPerHost = maxIdle, maxIdleOfOne
		t.ReadBufferSize, t.WriteBufferSize = upstreamBuffer, upstreamBuffer
		t.ExpectContinueTimeout = continueTime
		t.HTTP2.MaxReadFrameSize = buffer.Large // a tenth less work than for the usual 16 KiB (command bench, inspect)
		t.TLSClientConfig.ClientSessionCache = sessions
	})
	return all
}

// shrink closes the connections that a table has no use for. Whoever begins meanwhile is judged by it.
func (s *Server) shrink(t *table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if t.find(c.place) == nil {
			c.settled.Store(true)
			go c.Close() // it may wait for its client to read
		}
	}
	for u := range s.upstream {
		if t.find(u.place) == nil {
			go u.Close()
		}
	}
}

// dial connects to the server of an inspected name.
func (s *Server) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	c, at, err := s.connect(ctx, host, port)
	if err != nil {
		return nil, err
	}
	u := &tracked{Conn: c, place: at, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.flows.Policy().find(u.place) == nil {
		c.Close()
		return nil, errGone
	}
	s.upstream[u] = struct{}{}
	return u, nil
}

// tracked is a connection to a server.
type tracked struct {
	net.Conn
	place place
	of    *Server
}

func (u *tracked) Close() error {
	u.of.mu.Lock()
	delete(u.of.upstream, u)
	u.of.mu.Unlock()
	return u.Conn.Close()
}
