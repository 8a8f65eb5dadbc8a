package broker

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// routes are those of a table.
func (t table) routes() []route.Route {
	var all []route.Route
	for _, w := range t {
		all = append(all, w.route)
	}
	return all
}

// TestRotationLosesNoRequest changes the credential again and again under load. Each request is answered, and had no older
// credential than the one of when it was sent.
func TestRotationLosesNoRequest(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var loaded atomic.Int64
			key := func(n int64) string { return fmt.Sprintf("sk-canary-number-%08d", n) }
			a := newAPI(t, http2, func(w http.ResponseWriter, r *http.Request) {
				var n, sent int64
				_, err := fmt.Sscanf(r.Header.Get("X-Api-Key")+" "+r.Header.Get("X-Fine"), "sk-canary-number-%d %d", &n, &sent)
				if err != nil || n < sent || n > loaded.Load()+1 {
					w.WriteHeader(http.StatusUnauthorized)
				}
				io.Copy(w, r.Body)
			})
			r := start(t, a)
			load := func(n int64) {
				l := Loaded{Routes: []route.Route{opaque("r")}, Credentials: map[string][]byte{"r": []byte(key(n))}, Roots: a.ca.pool()}
				if err := r.Load(l); err != nil {
					t.Error(err)
				}
				loaded.Store(n)
			}
			load(1)
			var clients sync.WaitGroup
			var answers atomic.Int64
			const each, callers, rotations = 100, 4, 50
			for range callers {
				clients.Go(func() {
					for range each {
						if got := r.ask("POST", "/r/post", "the body", "X-Fine", fmt.Sprint(loaded.Load())); got.StatusCode != 200 || got.text != "the body" {
							t.Errorf("answered %d %s", got.StatusCode, got.text)
						}
						answers.Add(1)
					}
				})
			}
			// A rotation for every few answers, so that it doesn't matter how fast the machine is.
			for n := int64(2); n < rotations && answers.Load() < each*callers; n++ {
				for before := answers.Load(); answers.Load() < min(before+4, each*callers); {
					e := r.event()
					if e.Status != 200 {
						t.Errorf("recorded %+v", e)
					}
				}
				load(n)
			}
			clients.Wait()
			if loaded.Load() < 5 {
				t.Errorf("the credential changed %d times alone", loaded.Load())
			}
		})
	}
}

// TestRouteGoes holds that a route that is taken away ends what goes over it, and its connections, and no other's.
func TestRouteGoes(t *testing.T) {
	began := make(chan struct{}, 10)
	over := make(chan struct{})
	hold := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		began <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-over:
			io.WriteString(w, "whole")
		}
	}
	a := newAPI(t, true, hold)
	var mu sync.Mutex
	conns := map[string][]*noticed{}
	dial := func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.Listener.Addr().String())
		if err != nil {
			return nil, err
		}
		n := &noticed{Conn: conn, closed: make(chan struct{})}
		mu.Lock()
		conns[fmt.Sprint(host, port)] = append(conns[fmt.Sprint(host, port)], n)
		mu.Unlock()
		return n, nil
	}
	stays, goes := opaque("stays"), opaque("goes")
	goes.To = "https://api.test:8443/base"
	keys := map[string][]byte{"stays": []byte(canary), "goes": []byte(canary)}
	r := start(t, a, func(s *setting) {
		s.Dial, s.Routes, s.Credentials = dial, []route.Route{stays, goes}, keys
	})
	answers := map[string]chan string{"stays": make(chan string, 1), "goes": make(chan string, 1)}
	for name, answer := range answers {
		go func() {
			answer <- r.raw("GET /" + name + "/get HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\n\r\n")
		}()
		wait(t, began)
	}
	if err := r.Load(Loaded{Routes: []route.Route{stays}, Credentials: keys, Roots: a.ca.pool()}); err != nil {
		t.Fatal(err)
	}
	// Whether it ends before the answer's head has come, or behind it, nobody can say.
	if got := <-answers["goes"]; strings.HasSuffix(got, "0\r\n\r\n") || !strings.HasPrefix(got, "HTTP/1.1 200") && !strings.Contains(got, "this route is no more") {
		t.Errorf("the route that goes: answered %q", got)
	}
	for _, n := range conns["api.test8443"] {
		wait(t, n.closed)
	}
	if got := r.ask("GET", "/goes/get", ""); got.StatusCode != http.StatusForbidden || !strings.Contains(got.text, "no route /goes/") {
		t.Errorf("answered %d %s", got.StatusCode, got.text)
	}
	// Other roots: what is under way goes on, and what comes asks who the server is.
	if err := r.Load(Loaded{Routes: []route.Route{stays}, Credentials: keys, Roots: newAuthority(t).pool()}); err != nil {
		t.Fatal(err)
	}
	if got := r.ask("GET", "/stays/get", ""); got.StatusCode != http.StatusForbidden || !strings.Contains(got.text, "nobody whom this image trusts") {
		t.Errorf("with other roots: answered %d %s", got.StatusCode, got.text)
	}
	close(over)
	if got := <-answers["stays"]; !strings.Contains(got, "whole") || !strings.HasSuffix(got, "0\r\n\r\n") {
		t.Errorf("the route that stays: answered %q", got)
	}
	// No route at all: of what is idle nothing is left, of former roots neither.
	if err := r.Load(Loaded{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range conns["api.test443"] {
		wait(t, n.closed)
	}
}

// TestAnotherWayOut: once connections go out another way, none that went out the former one carries another request.
func TestAnotherWayOut(t *testing.T) {
	a := newAPI(t, true, nil)
	var dials atomic.Int32
	var of setting
	r := start(t, a, func(s *setting) {
		dial := s.Dial
		s.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, host, port)
		}
		of = *s
	})
	for i, by := range []string{"", "", "proxy.test", "proxy.test", ""} {
		l := of.Loaded
		if l.By = by; i > 0 {
			if err := r.Load(l); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.ask("GET", "/r/get", ""); got.StatusCode != 200 {
			t.Fatal(got.StatusCode, got.text)
		}
		if want := []int32{1, 1, 2, 2, 3}[i]; dials.Load() != want {
			t.Errorf("by %q: %d connections, want %d", by, dials.Load(), want)
		}
	}
}

// noticed tells that it was closed.
type noticed struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (n *noticed) Close() error {
	n.once.Do(func() { close(n.closed) })
	return n.Conn.Close()
}

// TestLoadRefuses holds what no proxy serves. What was served before is served on.
func TestLoadRefuses(t *testing.T) {
	a := newAPI(t, true, nil)
	r := start(t, a)
	for name, c := range map[string]struct {
		change func(*route.Route, *Loaded)
		told   string
	}{
		"no credential":         {func(_ *route.Route, l *Loaded) { l.Credentials = nil }, "it has no credential"},
		"an empty credential":   {func(_ *route.Route, l *Loaded) { l.Credentials["r"] = nil }, "it has no credential"},
		"two lines":             {func(_ *route.Route, l *Loaded) { l.Credentials["r"] = []byte(canary + "\nx: y") }, "bytes that no header may have"},
		"nowhere to put it":     {func(r *route.Route, _ *Loaded) { r.Inject = route.Inject{} }, "nothing says where"},
		"plain":                 {func(r *route.Route, _ *Loaded) { r.To = "http://api.test/" }, "would go over plain http"},
		"another scheme":        {func(r *route.Route, _ *Loaded) { r.To = "ftp://api.test/" }, "leads to no https://"},
		"no host":               {func(r *route.Route, _ *Loaded) { r.To = "https:///x" }, "leads to no https://"},
		"a user":                {func(r *route.Route, _ *Loaded) { r.To = "https://u:p@api.test/" }, "leads to no https://"},
		"no address":            {func(r *route.Route, _ *Loaded) { r.To = "https://%zz/" }, "leads to no address"},
		"a port that is none":   {func(r *route.Route, _ *Loaded) { r.To = "https://api.test:0/" }, "leads to no port"},
		"a port that is larger": {func(r *route.Route, _ *Loaded) { r.To = "https://api.test:65536/" }, "leads to no port"},
	} {
		one := opaque("r")
		l := Loaded{Credentials: map[string][]byte{"r": []byte(canary)}, Roots: x509.NewCertPool()}
		c.change(&one, &l)
		l.Routes = []route.Route{one}
		if err := r.Load(l); err == nil || !strings.Contains(err.Error(), c.told) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
		if got := r.ask("GET", "/r/get", ""); got.StatusCode != 200 {
			t.Errorf("%s: answered %d", name, got.StatusCode)
		}
	}
	twice := Loaded{Routes: []route.Route{opaque("r"), opaque("r")}, Credentials: map[string][]byte{"r": []byte(canary)}}
	if err := r.Load(twice); err == nil {
		t.Error("two routes of a name are served")
	}
}

// TestKeylessRoute holds that a server that wants no key gets none, over plain HTTP too.
func TestKeylessRoute(t *testing.T) {
	got := make(chan *http.Request, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got <- r })}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	r := start(t, newAPI(t, true, nil), func(s *setting) {
		s.Routes[0].To, s.Routes[0].Keyless, s.Dial = "http://model.test:11434", true, dialTo(l.Addr().String())
	})
	if got := r.ask("POST", "/r/post", "x"); got.StatusCode != 200 {
		t.Fatalf("answered %d %s", got.StatusCode, got.text)
	}
	q := <-got
	if q.Host != "model.test:11434" || q.URL.Path != "/post" || q.Header.Get("X-Api-Key") != "" || q.Header.Get("Authorization") != "" {
		t.Errorf("the server got %s %s %v", q.Host, q.URL, q.Header)
	}
}
