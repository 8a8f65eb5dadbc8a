package inspect

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/onward"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestShrink: what a policy does not allow any more ends, and all else goes on.
func TestShrink(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		more := make(chan struct{})
		defer close(more)
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			fmt.Fprint(w, "hello")
			http.NewResponseController(w).Flush()
			if q.URL.Path == "/goes" {
				<-q.Context().Done()
				return
			}
			select {
			case <-more:
			case <-q.Context().Done():
			}
		}, func(s *setting) {
			s.Inspected = any443(route.Request{Path: "/goes", Rule: "p:1"}, route.Request{Path: "/stays", Rule: "p:2"})
		})
		c := r.client(two)
		open := map[string]io.ReadCloser{}
		for _, path := range []string{"/goes", "/stays"} {
			resp, err := c.Get("https://" + name + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			io.ReadFull(resp.Body, make([]byte, 5))
			open[path] = resp.Body
		}
		r.loaded.Inspected = any443(route.Request{Path: "/stays", Rule: "p:2"})
		if err := r.Load(r.loaded); err != nil {
			t.Fatal(err)
		}
		if _, err := open["/goes"].Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Error("it goes on, or ends as if it were whole:", err)
		}
		if e := r.event(); e.Path != "/goes" || !strings.HasPrefix(e.Refused, "policy: ") {
			t.Errorf("%+v", e)
		}
		if got := r.ask(c, "HEAD", "/goes", ""); got.StatusCode != 403 {
			t.Error(got.Response)
		}
		r.event()
		more <- struct{}{}
		if rest, err := io.ReadAll(open["/stays"]); err != nil || len(rest) != 0 {
			t.Error(rest, err)
		}
		if e := r.event(); e.Path != "/stays" || e.Refused != "" {
			t.Errorf("%+v", e)
		}
	})
}

// TestGone: connections of a name that is not inspected any more are closed, and so are those to its server.
func TestGone(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		r := start(t, nil)
		c := r.client(two)
		r.ask(c, "GET", "/", "")
		r.loaded.Inspected = nil
		if err := r.Load(r.loaded); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			r.Server.mu.Lock()
			left := len(r.conns) + len(r.upstream)
			r.Server.mu.Unlock()
			if left == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal(left, "connections are left")
			}
		}
		if resp, err := c.Get("https://" + name + "/"); err == nil {
			t.Error("it is served still:", resp.Status)
		}
	})
}

// TestServersAreProved: nothing goes to a server whose certificate the image does not trust.
func TestServersAreProved(t *testing.T) {
	r := start(t, nil, func(s *setting) { s.Roots = x509.NewCertPool() })
	got := r.ask(r.client(true), "GET", "/", "", "Authorization", "Bearer "+canary)
	if got.StatusCode != 403 || !strings.Contains(got.text, "nothing was sent") || !strings.Contains(got.text, "--ca") || len(r.requests()) != 0 {
		t.Error(got.StatusCode, got.text)
	}
	_, r.loaded.Roots = selfSigned(t)
	for _, c := range r.back.TLS.Certificates {
		leaf, _ := x509.ParseCertificate(c.Certificate[0])
		r.loaded.Roots.AddCert(leaf)
	}
	if err := r.Load(r.loaded); err != nil {
		t.Fatal(err)
	}
	if got := r.ask(r.client(true), "GET", "/", ""); got.StatusCode != 200 {
		t.Error("with other roots:", got.StatusCode, got.text)
	}
}

// TestAnotherWayOut: once connections go out another way, none that went out the former one carries another request.
func TestAnotherWayOut(t *testing.T) {
	var made atomic.Int32
	r := start(t, nil, func(s *setting) {
		s.connState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				made.Add(1)
			}
		}
	})
	for i, by := range []string{"", "", "proxy.test", "proxy.test", ""} {
		if r.loaded.By = by; i > 0 {
			if err := r.Load(r.loaded); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.ask(r.client(true), "GET", "/", ""); got.StatusCode != 200 {
			t.Fatal(got.StatusCode, got.text)
		}
		if want := []int32{1, 1, 2, 2, 3}[i]; made.Load() != want {
			t.Errorf("by %q: %d connections, want %d", by, made.Load(), want)
		}
	}
}

// TestObserve: a name that is observed only passes all, and says what it would not.
func TestObserve(t *testing.T) {
	r := start(t, nil, func(s *setting) {
		s.Inspected = any443(route.Request{Methods: []string{"GET"}, Path: "/a", Rule: "p:1"})
		s.Inspected[0].Observe = true
	})
	for path, observed := range map[string]bool{"/a": false, "/b": true} {
		if got := r.ask(r.client(true), "GET", path, ""); got.StatusCode != 200 {
			t.Error(path, got.StatusCode)
		}
		if e := r.event(); (e.Observed != "") != observed || e.Refused != "" || e.Status != 200 {
			t.Errorf("%+v", e)
		}
	}
}

// TestSilence: a request that nobody hears of any more ends.
func TestSilence(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, func(s *setting) {
			s.idle = 50 * time.Millisecond
		})
		if got := r.ask(r.client(two), "GET", "/", ""); got.StatusCode != 504 {
			t.Error(got.StatusCode, got.text)
		}
		if e := r.event(); !strings.HasPrefix(e.Refused, "late: ") {
			t.Errorf("%+v", e)
		}
	})
}

// TestPlain: HTTP without TLS is judged as well, and stays in its version.
func TestPlain(t *testing.T) {
	r := start(t, nil, func(s *setting) {
		s.port, s.plain = 80, true
		s.Inspected = []route.Inspected{{
			Name: name, Port: 80, Plain: true, Allow: []route.Request{{Methods: []string{"GET"}, Path: "/ok", Rule: "p:1"}},
		}}
	})
	for request, want := range map[string]string{
		"GET /ok HTTP/1.1\r\nHost: api.test\r\n\r\n": "HTTP/1.1 200",
		"GET /ok HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n": "HTTP/1.1 200",
		"GET /no HTTP/1.1\r\nHost: api.test\r\n\r\n":                           "HTTP/1.1 403",
		"GET /ok HTTP/1.1\r\nHost: other.test\r\n\r\n":                         "HTTP/1.1 421",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00": "HTTP/1.1 4",
		"\x16\x03\x01\x00\x10 is TLS\r\n\r\n":                                  "HTTP/1.1 400",
	} {
		c, err := net.Dial("tcp", r.front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, request)
		b := make([]byte, 100)
		n, _ := c.Read(b)
		c.Close()
		if !strings.HasPrefix(string(b[:n]), want) {
			t.Errorf("%q: %q", request, b[:n])
		}
	}
	for _, q := range r.requests() {
		if q.RequestURI != "/ok" || q.Header["Upgrade"] != nil {
			t.Error(q.RequestURI, q.Header)
		}
	}
}

// TestBounds: one more connection than there may be is closed at once, and a request too many is refused.
func TestBounds(t *testing.T) {
	wait := make(chan struct{})
	r := start(t, func(w http.ResponseWriter, q *http.Request) { <-wait })
	defer close(wait)
	r.Server.mu.Lock()
	for range maxConns {
		r.conns[&conn{Conn: closed{}, of: r.Server}] = struct{}{}
	}
	r.Server.mu.Unlock()
	if c, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: name}); err == nil {
		c.Close()
		t.Error("it is served")
	}
	if e := r.event(); !strings.HasPrefix(e.Refused, "busy: ") {
		t.Errorf("%+v", e)
	}
	r.Server.mu.Lock()
	clear(r.conns)
	for range maxUnder {
		r.flows.Begin(&exchange{conn: &conn{}, cancel: func(error) {}})
	}
	r.Server.mu.Unlock()
	if got := r.ask(r.client(true), "GET", "/", ""); got.StatusCode != 503 {
		t.Error(got.StatusCode, got.text)
	}
}

// TestBoundsOfUser: what one user has leaves room for another, and is his again when it ends.
func TestBoundsOfUser(t *testing.T) {
	r := start(t, nil)
	set := func(uid uint32, u use) {
		r.Server.mu.Lock()
		defer r.Server.mu.Unlock()
		r.users[uid] = u
	}
	set(1001, use{maxOfUser, maxUnderOfUser})
	c := r.client(true)
	if got := r.ask(c, "GET", "/", ""); got.StatusCode != 200 {
		t.Error("another user is not served:", got.StatusCode)
	}
	r.event()
	set(1000, use{1, maxUnderOfUser})
	if got := r.ask(c, "GET", "/", ""); got.StatusCode != 503 {
		t.Error("one request too many:", got.StatusCode)
	}
	r.event()
	set(1000, use{maxOfUser, 0})
	requests := func(n int) {
		r.Server.mu.Lock()
		defer r.Server.mu.Unlock()
		for c := range r.conns {
			c.under = n
		}
	}
	requests(1)
	if c, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: name}); err == nil {
		c.Close()
		t.Error("one connection too many is served")
	}
	if e := r.event(); !strings.HasPrefix(e.Refused, "busy: ") {
		t.Errorf("%+v", e)
	}
	requests(0)
	set(1000, use{1, 0})
	c.CloseIdleConnections()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r.Server.mu.Lock()
		left, there := r.users[1000]
		r.Server.mu.Unlock()
		if !there {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("he still has %+v", left)
		}
	}
}

type closed struct{ net.Conn }

func (closed) Close() error { return nil }

// TestFewConnections: many who ask at once share what is connected to their server.
func TestFewConnections(t *testing.T) {
	var made atomic.Int64
	r := start(t, nil, func(s *setting) {
		s.connState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				made.Add(1)
			}
		}
	})
	c := r.client(true)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if resp, err := c.Get("https://" + name + "/"); err != nil || resp.StatusCode != 200 {
				t.Error(resp, err)
			}
		})
	}
	if all.Wait(); made.Load() > 2*onward.MaxDials { // for each kind of window
		t.Errorf("%d connections to the server", made.Load())
	}
}

// TestConnectionsWithoutRequests: connections that only begin, or whose requests are over, are in the way of no other of
// their user, and take no place of one with a request under way.
func TestConnectionsWithoutRequests(t *testing.T) {
	wait, waits := make(chan struct{}), make(chan struct{}, 2)
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/wait" {
			waits <- struct{}{}
			<-wait
		}
	})
	answers := make(chan int, 2)
	for _, http2 := range []bool{false, true} {
		c := r.client(http2)
		go func() { answers <- r.ask(c, "GET", "/wait", "").StatusCode }()
		<-waits
		for range 8 {
			if got := r.ask(r.client(http2), "GET", "/", ""); got.StatusCode != 200 {
				t.Error(got.StatusCode)
			}
		}
	}
	for range maxOfUser {
		c, err := net.Dial("tcp", r.front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "\x16\x03\x01\x02\x00\x01\x00")
	}
	for _, http2 := range []bool{false, true, false, true} {
		if got := r.ask(r.client(http2), "GET", "/", ""); got.StatusCode != 200 {
			t.Error(got.StatusCode)
		}
	}
	close(wait)
	for range 2 {
		if got := <-answers; got != 200 {
			t.Error("a request that was under way is answered", got)
		}
	}
	for !strings.HasPrefix(r.event().Refused, "busy: ") {
	}
}
