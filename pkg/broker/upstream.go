package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/agent-init/agent-init/pkg/broker/onward"
)

var errRouteGone = errors.New("the route was taken away")

// place is where a route leads to: what connections are shared by.
type place struct {
	scheme, host string
	port         uint16
}

func placeOf(u *url.URL) (place, error) {
	port := u.Port()
	switch {
	case u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "", u.User != nil, u.RawQuery != "", u.Fragment != "":
		return place{}, fmt.Errorf("it leads to no https://HOST[:PORT][/PREFIX]")
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return place{}, fmt.Errorf("it leads to no port")
	}
	return place{u.Scheme, u.Hostname(), uint16(n)}, nil
}

// upstream has the connections to one place.
type upstream struct {
	place     place
	roots     *x509.CertPool
	by        string // see Loaded
	transport *onward.Transport
	dials     chan struct{}
	ctx       context.Context // ends with the route
	end       context.CancelFunc

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

type dialer func(ctx context.Context, host string, port uint16) (net.Conn, error)

func newUpstream(to place, roots *x509.CertPool, by string, dial dialer) *upstream {
	u := &upstream{place: to, roots: roots, by: by, dials: make(chan struct{}, onward.MaxDials), conns: map[net.Conn]struct{}{}}
	u.ctx, u.end = context.WithCancel(context.Background())
	u.transport = onward.NewTransport(roots, func(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(u.ctx, cancel)()
		conn, err := dial(ctx, to.host, to.port)
		if err != nil {
			return nil, err
		}
		return u.track(conn)
	})
	return u
}

// ask sends a request. Whoever waits for a connection waits for one of a few that are made.
func (u *upstream) ask(r *http.Request) (*http.Response, error) {
	select {
	case u.dials <- struct{}{}:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	made := sync.OnceFunc(func() { <-u.dials })
	defer made()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { made() }}
	return u.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// track remembers a connection for as long as it is open.
func (u *upstream) track(conn net.Conn) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		conn.Close()
		return nil, errRouteGone
	}
	t := &tracked{Conn: conn, of: u}
	u.conns[t] = struct{}{}
	return t, nil
}

type tracked struct {
	net.Conn
	of *upstream
}

func (t *tracked) Close() error {
	t.of.mu.Lock()
	delete(t.of.conns, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// idle says that there is no connection.
func (u *upstream) idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns) == 0
}

// close ends all that goes on with this place.
func (u *upstream) close() {
	u.mu.Lock()
	u.end()
	conns := slices.Collect(maps.Keys(u.conns))
	u.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	u.transport.CloseIdleConnections()
}
