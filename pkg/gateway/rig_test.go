package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/issuer"
	"github.com/agent-init/agent-init/internal/race"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The address that the names of the tests are leased at. Nothing is sent there:
// the rig's Dial goes to loopback.
var (
	site    = netip.MustParseAddr("192.0.2.1")
	siteTLS = netip.AddrPortFrom(site, 443)
	siteWeb = netip.AddrPortFrom(site, 80)
	siteSSH = netip.AddrPortFrom(site, 22)

	site8443 = netip.AddrPortFrom(site, 8443)
	site8080 = netip.AddrPortFrom(site, 8080)
)

const waitTime = 90 * time.Second

// rig is a Server with a listener for each original destination, and servers
// behind it.
type rig struct {
	*Server
	t      testing.TB
	policy atomic.Pointer[policy.Policy]
	cert   tls.Certificate

	listeners map[netip.AddrPort]*net.TCPListener
	cancel    context.CancelFunc
	served    chan error

	mu      sync.Mutex
	leases  map[string]netip.Addr
	servers map[netip.AddrPort]string
	dialled int
	events  []audit.Event
	changed sync.Cond
}

func parsePolicy(t testing.TB, lines ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(strings.Join(lines, "\n") + "\n")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// settings are what a test can change of a Server.
type settings struct {
	Config
	limits   limits
	dial     func(context.Context, netip.AddrPort) (*net.TCPConn, error)
	original func(*net.TCPConn) (netip.AddrPort, error)
	room     race.Room
	rig      *rig // what they are for; it does not serve yet
}

func newRig(t testing.TB, change func(*settings)) *rig {
	t.Helper()
	r := &rig{t: t, listeners: map[netip.AddrPort]*net.TCPListener{}, servers: map[netip.AddrPort]string{}, served: make(chan error, 1),
		leases: map[string]netip.Addr{}, cert: issuer.New("nobody's", nil).Issue(time.Now().Add(time.Hour), "ok.test")}
	r.changed.L = &r.mu
	r.policy.Store(parsePolicy(t, "ok.test", "two.test", "away.test", "tls.test:443", "*.wild.test", "!no.wild.test"))
	for _, name := range []string{"ok.test", "two.test", "tls.test", "no.wild.test", "a.wild.test", "evil.test"} {
		r.leases[name] = site
	}
	r.leases["away.test"] = netip.MustParseAddr("192.0.2.99")
	c := Config{Policy: r.policy.Load, LeasedTo: r.leasedTo, Record: r.record, Find: audit.Nobody, FindAllowed: func() audit.Finder { return nil },
		Aside: func(string, netip.Addr) bool { return false }, Connections: 4096, Log: slog.New(slog.DiscardHandler)}
	var err error
	if r.Server, err = New(c); err != nil {
		t.Fatal(err)
	}
	to := settings{c, r.Server.limits, r.dial, r.original, r.Server.room, r}
	if change != nil {
		change(&to)
	}
	s := r.Server
	s.config, s.limits, s.dial, s.original, s.room, s.conns.most = to.Config, to.limits, to.dial, to.original, to.room, to.Connections
	var listeners []net.Listener
	for _, to := range []netip.AddrPort{siteTLS, siteWeb, siteSSH, site8443, site8080} {
		l := listen(t)
		r.listeners[to] = l
		listeners = append(listeners, l)
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	go func() { r.served <- r.Serve(ctx, listeners) }()
	t.Cleanup(r.stop)
	return r
}

// stop ends the gate and checks that it leaves nothing behind.
func (r *rig) stop() {
	r.cancel()
	select {
	case err := <-r.served:
		if err != nil {
			r.t.Errorf("serve: %v", err)
		}
		r.served <- nil
	case <-time.After(waitTime):
		r.t.Error("the gate does not end")
		return
	}
	if open, sniffing := r.Stats().Open, r.sniffing(); open != 0 || sniffing != 0 {
		r.t.Errorf("left behind: %d connections, %d not judged", open, sniffing)
	}
}

// sniffing is how many connections are not judged yet.
func (r *rig) sniffing() int {
	r.conns.mu.Lock()
	defer r.conns.mu.Unlock()
	return len(r.conns.sniffing)
}

// count is how many events were recorded that are as said.
func (r *rig) count(kind audit.Kind, v audit.Verdict, reason string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind && e.Verdict == v && strings.HasPrefix(e.Reason, reason) {
			n++
		}
	}
	return n
}

func listen(t testing.TB) *net.TCPListener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

func (r *rig) original(c *net.TCPConn) (netip.AddrPort, error) {
	for to, l := range r.listeners {
		if l.Addr().String() == c.LocalAddr().String() {
			return to, nil
		}
	}
	return netip.AddrPort{}, errors.New("not a listener of the rig")
}

func (r *rig) leasedTo(_ context.Context, name string, addr netip.AddrPort) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leases[name] == addr.Addr(), nil
}

func (r *rig) dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	r.mu.Lock()
	addr, ok := r.servers[to]
	r.dialled++
	r.mu.Unlock()
	if !ok {
		return nil, syscall.ECONNREFUSED
	}
	return dial(ctx, netip.MustParseAddrPort(addr))
}

func (r *rig) record(e audit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	r.changed.Broadcast()
}

// event waits for the nth event of a kind.
func (r *rig) event(kind audit.Kind, n int) audit.Event {
	r.t.Helper()
	late := time.AfterFunc(waitTime, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, audit.Event{Kind: "late"})
		r.changed.Broadcast()
	})
	defer late.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var found []audit.Event
		for _, e := range r.events {
			if e.Kind == kind {
				found = append(found, e)
			}
			if e.Kind == "late" {
				r.t.Fatalf("no %s event %d among %+v", kind, n, r.events)
			}
		}
		if len(found) > n {
			return found[n]
		}
		r.changed.Wait()
	}
}

func (r *rig) dials() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialled
}

// server has fn serve what the gate connects to at to.
func (r *rig) server(to netip.AddrPort, fn func(*net.TCPConn)) {
	l := listen(r.t)
	r.behind(to, l)
	serve(l, fn)
}

func serve(l net.Listener, fn func(*net.TCPConn)) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fn(c.(*net.TCPConn))
			}()
		}
	}()
}

// behind has the gate connect to l for to.
func (r *rig) behind(to netip.AddrPort, l net.Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[to] = l.Addr().String()
}

// connect makes a connection that was going to to.
func (r *rig) connect(to netip.AddrPort) *net.TCPConn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.listeners[to].Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(waitTime))
	return c.(*net.TCPConn)
}

// config is a TLS server's.
func (r *rig) config() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{r.cert}} }

// echo serves TLS that answers with what it gets, and the server name first.
func (r *rig) echo(config *tls.Config) {
	r.server(siteTLS, func(c *net.TCPConn) {
		s := tls.Server(c, config)
		if s.Handshake() != nil {
			return
		}
		fmt.Fprintf(s, "%s\n", s.ConnectionState().ServerName)
		io.Copy(s, s)
		s.CloseWrite()
	})
}

// refused sends b to to and fails unless that is answered by a reset alone.
func (r *rig) refused(to netip.AddrPort, b string) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.listeners[to].Addr().String())
	if errors.Is(err, syscall.ECONNRESET) {
		return // before Dial could even look
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(waitTime))
	if _, err := io.WriteString(c, b); errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return
	}
	wantReset(r.t, c)
}

// denied sends a hello to to and fails unless that is answered by the alert that denies access, and the end.
func (r *rig) denied(to netip.AddrPort, hello string) {
	r.t.Helper()
	c := r.connect(to)
	io.WriteString(c, hello)
	if b, err := io.ReadAll(c); string(b) != accessDenied || err != nil {
		r.t.Errorf("%x, %v; want the alert", b, err)
	}
	c.Close()
}

// wantReset fails unless c is reset without a byte.
func wantReset(t testing.TB, c net.Conn) {
	t.Helper()
	n, err := c.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes, %v; want a reset", n, err)
	}
}

func wantReason(t testing.TB, e audit.Event, v audit.Verdict, reason string) {
	t.Helper()
	if e.Verdict != v || !strings.HasPrefix(e.Reason, reason) {
		t.Errorf("recorded %+v, want %s: %s", e, v, reason)
	}
}

// insecure is a client's configuration that trusts the rig's certificate, like
// any other.
func insecure(name string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: true}
}

// clientHello is what crypto/tls says first.
func clientHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	var c capture
	tls.Client(&c, config).Handshake()
	return c.first
}

// capture is a connection that keeps the first write and then fails.
type capture struct {
	net.Conn
	first []byte
}

func (c *capture) Write(p []byte) (int, error) {
	c.first = slices.Clone(p)
	return 0, io.ErrClosedPipe
}
func (c *capture) SetWriteDeadline(time.Time) error { return nil }
func (c *capture) Close() error                     { return nil }
