package inspect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/issuer"
	"github.com/agent-init/agent-init/pkg/broker/authority"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

const (
	token    = "5d0c1f4e8a7b4c2d9e6f3a1b0c8d7e6f5d0c1f4e8a7b4c2d9e6f3a1b0c8d7e6f"
	canary   = "sk-canary-3f2a9d-VERYSECRET+/=x"
	patience = time.Minute
	name     = "api.test"
)

// rig is a server for inspected names between a client and an upstream server.
type rig struct {
	*Server
	t      testing.TB
	front  net.Listener // where the gate would have handed over what comes
	back   *httptest.Server
	loaded Loaded
	events chan Event

	mu     sync.Mutex
	got    []*http.Request // that came to the upstream server
	bodies []string
}

// setting is what a test may change.
type setting struct {
	Loaded
	handed string // the name that the gate says
	port   uint16
	http1  bool // the upstream server speaks HTTP/1.1 alone
	plain  bool
	idle   time.Duration
	serve  http.HandlerFunc
	at     string // of another upstream server than the rig's
	proxy  func() (authorization string, is bool)

	connState func(net.Conn, http.ConnState) // of the upstream server
}

func any443(rules ...route.Request) []route.Inspected {
	if rules == nil {
		methods := []string{"GET", "HEAD", "POST", "PUT"}
		rules = []route.Request{{Methods: methods, Rule: "p:1", WebSocket: true}}
	}
	return []route.Inspected{{Name: name, Port: 443, Allow: rules}}
}

func start(t testing.TB, serve http.HandlerFunc, change ...func(*setting)) *rig {
	t.Helper()
	set := setting{handed: name, port: 443, serve: serve}
	set.Inspected = any443()
	for _, f := range change {
		f(&set)
	}
	r := &rig{t: t, events: make(chan Event, 4096)}
	r.back = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		kept := q.Clone(context.Background())
		r.mu.Lock()
		r.got = append(r.got, kept)
		r.mu.Unlock()
		if set.serve != nil {
			set.serve(w, q)
			return
		}
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.bodies = append(r.bodies, string(body))
		kept.Trailer = q.Trailer
		r.mu.Unlock()
	}))
	r.back.EnableHTTP2, r.back.Config.ConnState = !set.http1, set.connState
	r.back.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if set.plain {
		r.back.Start()
	} else {
		certificate, pool := selfSigned(t)
		r.back.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		if set.Roots == nil {
			set.Roots = pool
		}
		r.back.StartTLS()
	}
	t.Cleanup(func() {
		r.back.CloseClientConnections()
		r.back.Close()
	})
	a, err := authority.New([]authority.Name{{Name: name}, {Name: "wild.test", Wildcard: true}})
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Token: token, Leaf: a.Leaf, Room: room.New(64 << 20),
		Dial: func(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", cmp.Or(set.at, r.back.Listener.Addr().String()))
		},
		Spend: func(context.Context, string, int64) (string, error) { return "", nil },
		Record: func(e Event) {
			select {
			case r.events <- e:
			default:
			}
		},
	}
	if set.proxy != nil {
		config.Proxy = func(string, uint16) (string, bool) { return set.proxy() }
		config.DialProxy = config.Dial
	}
	r.Server = New(config)
	if set.idle != 0 {
		r.idle = set.idle
	}
	if err := r.Load(set.Loaded); err != nil {
		t.Fatal(err)
	}
	r.loaded = set.Loaded
	if r.front, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx) }()
	go r.gate(set)
	trusted = x509.NewCertPool()
	trusted.AppendCertsFromPEM(a.Certificate())
	t.Cleanup(func() {
		r.front.Close()
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			t.Error("Serve does not end")
		}
	})
	return r
}

// trusted is what clients of the newest rig trust.
var trusted *x509.CertPool

// gate hands all over that comes, with a few bytes that it has read.
func (r *rig) gate(set setting) {
	for {
		c, err := r.front.Accept()
		if err != nil {
			return
		}
		go func() {
			var read [7]byte
			n, _ := io.ReadFull(c, read[:])
			r.Inspect(Handed{
				Conn: c.(*net.TCPConn), Name: set.handed, To: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), set.port),
				Read: read[:n], UID: 1000,
			})
		}()
	}
}

// selfSigned is a certificate of the test's own, and who trusts it.
func selfSigned(testing.TB) (tls.Certificate, *x509.CertPool) {
	ca := issuer.New("test authority", nil)
	return ca.Issue(time.Now().Add(time.Hour), name, "*.wild.test"), ca.Pool()
}

// client is one that asks for the name over the protocols.
func (r *rig) client(http2 bool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetHTTP2(http2)
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", r.front.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: trusted}, Protocols: p, DisableCompression: true,
		ExpectContinueTimeout: patience,
	}
	r.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// both runs a test over HTTP/1.1 and over HTTP/2.
func both(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Run("h1", func(t *testing.T) { f(t, false) })
	t.Run("h2", func(t *testing.T) { f(t, true) })
}

// answered is what came back.
type answered struct {
	*http.Response
	text string
}

func (r *rig) ask(c *http.Client, method, path, body string, headers ...string) answered {
	r.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	q, err := http.NewRequest(method, "https://"+name+path, from)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Add(headers[i], headers[i+1])
	}
	return r.do(c, q)
}

func (r *rig) do(c *http.Client, q *http.Request) answered {
	r.t.Helper()
	resp, err := c.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("the answer ends with %v", err)
	}
	return answered{resp, string(text)}
}

func (r *rig) requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.got...)
}

// event is the next one.
func (r *rig) event() Event {
	r.t.Helper()
	select {
	case e := <-r.events:
		return e
	case <-time.After(patience):
		r.t.Fatal("no event")
		return Event{}
	}
}

// raw sends bytes over TLS, and says what came back first.
func (r *rig) raw(protocol, text string) string {
	r.t.Helper()
	c, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: name, NextProtos: []string{protocol}})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if io.WriteString(c, text); text == "" {
		c.CloseWrite()
	}
	var b [4096]byte
	n, _ := c.Read(b[:])
	return string(b[:n])
}
