package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/issuer"
	"github.com/agent-init/agent-init/pkg/broker/inspect"
	"github.com/agent-init/agent-init/pkg/route"
)

const (
	token  = "5d0c1f4e8a7b4c2d9e6f3a1b0c8d7e6f5d0c1f4e8a7b4c2d9e6f3a1b0c8d7e6f"
	canary = "sk-canary-3f2a9d-VERYSECRET+/=x"

	patience = time.Minute
)

// authority signs certificates of servers.
type authority struct{ *issuer.Issuer }

func newAuthority(testing.TB) *authority { return &authority{issuer.New("test authority", nil)} }

func (a *authority) pool() *x509.CertPool { return a.Pool() }

func (a *authority) sign(_ testing.TB, name string, until time.Time) tls.Certificate {
	return a.Issue(until, name)
}

// api is the server of a route. It answers under the name api.test.
type api struct {
	*httptest.Server
	ca *authority

	mu  sync.Mutex
	got []*http.Request // their bodies are read
}

func newAPI(t testing.TB, http2 bool, answer http.HandlerFunc) *api {
	t.Helper()
	a := &api{ca: newAuthority(t)}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		kept := r.Clone(context.Background())
		kept.Body = io.NopCloser(strings.NewReader(string(body)))
		a.got = append(a.got, kept)
		a.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if answer != nil {
			answer(w, r)
		}
	}))
	a.EnableHTTP2 = http2
	a.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	a.TLS = &tls.Config{Certificates: []tls.Certificate{a.ca.sign(t, "api.test", time.Now().Add(time.Hour))}}
	a.StartTLS()
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// requests are those that came.
func (a *api) requests() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*http.Request(nil), a.got...)
}

// rig is a proxy that serves.
type rig struct {
	*Proxy
	t      testing.TB
	addr   string
	log    *locked
	events chan Event
}

// dialTo connects to one place, whatever is asked for.
func dialTo(addr string) func(context.Context, string, uint16) (net.Conn, error) {
	return func(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
}

// dialing is a configuration that does so, and records nothing.
func dialing(addr string) Config {
	return Config{
		Config: inspect.Config{Token: token, Dial: dialTo(addr), Record: func(Event) {}}, Log: slog.New(slog.DiscardHandler),
	}
}

func newRig(t testing.TB, c Config, tune func(*Proxy)) *rig {
	t.Helper()
	r := &rig{t: t, log: &locked{}, events: make(chan Event, 4096)}
	c.Record = func(e Event) {
		select {
		case r.events <- e:
		default:
		}
	}
	c.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.Proxy = New(c)
	if tune != nil {
		tune(r.Proxy)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
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

// locked is what was logged.
type locked struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (r *rig) logged() string {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.log.text.String()
}

// opaque is a route without rules for bodies.
func opaque(name string) route.Route {
	return route.Route{
		Name: name, To: "https://api.test/base",
		Inject:  route.Inject{Header: "x-api-key", Value: "{}"},
		Headers: []string{"x-fine", "x-list-*"},
		Endpoints: []route.Endpoint{
			{Method: "GET", Path: "/get"}, {Method: "GET", Path: "/many/**"}, {Method: "POST", Path: "/post", Body: route.Opaque},
		},
		Shape: route.AnthropicShape,
	}
}

// setting is what a test may change before a proxy starts.
type setting struct {
	Config
	Loaded
	tune func(*Proxy)
}

// start has a proxy with one opaque route to a.
func start(t testing.TB, a *api, change ...func(*setting)) *rig {
	t.Helper()
	s := setting{}
	s.Config = dialing(a.Listener.Addr().String())
	s.Loaded = Loaded{Routes: []route.Route{opaque("r")}, Credentials: map[string][]byte{"r": []byte(canary)}, Roots: a.ca.pool()}
	for _, f := range change {
		f(&s)
	}
	r := newRig(t, s.Config, s.tune)
	if err := r.Load(s.Loaded); err != nil {
		t.Fatal(err)
	}
	return r
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

// answered is what came back.
type answered struct {
	*http.Response
	text string
}

// ask sends a request with the token, unless it has keys of its own.
func (r *rig) ask(method, path, body string, headers ...string) answered {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return r.do(req)
}

var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (r *rig) do(req *http.Request) answered {
	r.t.Helper()
	resp, err := client.Do(req)
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

// raw sends bytes, and says what came back until the end of the connection.
func (r *rig) raw(text string) string {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	b, err := io.ReadAll(bufio.NewReader(conn))
	if errors.Is(err, context.DeadlineExceeded) {
		r.t.Fatal("the connection stays open")
	}
	return string(b)
}
