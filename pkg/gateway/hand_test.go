package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// handing is a rig with inspected names, of which the test is the broker.
type handing struct {
	*rig
	handed chan Handed
}

func newHanding(t *testing.T, change func(*settings)) *handing {
	h := &handing{handed: make(chan Handed, 1)}
	h.rig = newRig(t, func(s *settings) {
		s.Hand = h.hand
		if change != nil {
			change(s)
		}
	})
	h.policy.Store(parsePolicy(t, "ok.test", "api.test GET /open/**", "api.test:8443 GET /**", "web.test:80 GET /**", "web.test:8080 http GET /**",
		"tls.test:8443 tls", "plain.test:8080 http"))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range []string{"api.test", "web.test", "tls.test", "plain.test"} {
		h.leases[name] = site
	}
	return h
}

// hand takes a descriptor of its own, as another process gets one.
func (h *handing) hand(_ context.Context, c Handed) error {
	f, err := c.Conn.File()
	if err != nil {
		return err
	}
	defer f.Close()
	own, err := net.FileConn(f)
	if err != nil {
		return err
	}
	c.Conn = own.(*net.TCPConn)
	h.handed <- c
	return nil
}

// next is the connection that is handed over next.
func (h *handing) next() Handed {
	h.t.Helper()
	select {
	case c := <-h.handed:
		h.t.Cleanup(func() { c.Conn.Close() })
		c.Conn.SetDeadline(time.Now().Add(waitTime))
		return c
	case <-time.After(waitTime):
		h.t.Fatal("nothing is handed over")
		return Handed{}
	}
}

// TestHandOverTLS: all that a client says arrives, in order, also what it says ahead, and the connection ends as its new
// owner has it end.
func TestHandOverTLS(t *testing.T) {
	h := newHanding(t, nil)
	for _, to := range []netip.AddrPort{siteTLS, site8443} {
		client := h.connect(to)
		served := make(chan error, 1)
		go func() {
			s := tls.Client(client, insecure("api.test"))
			fmt.Fprint(s, "hello")
			b, err := io.ReadAll(s)
			if string(b) != "and goodbye" && err == nil {
				err = fmt.Errorf("read %q", b)
			}
			served <- err
		}()
		c := h.next()
		if c.Name != "api.test" || c.To != to || len(c.Read) == 0 || c.Read[0] != recordHandshake {
			t.Fatalf("handed over: %+v", c)
		}
		s := tls.Server(&ahead{c.Conn, bytes.NewReader(c.Read)}, h.config())
		b := make([]byte, 5)
		if _, err := io.ReadFull(s, b); err != nil || string(b) != "hello" {
			t.Fatalf("read %q, %v", b, err)
		}
		fmt.Fprint(s, "and goodbye")
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	wantReason(t, h.event(audit.Connect, 1), audit.Allow, "inspected by the broker")
	if h.dials() != 0 {
		t.Error("the gate has connected onward")
	}
	if s := h.Stats(); s.Allowed != 2 || s.Refused != 0 {
		t.Errorf("counted %+v", s)
	}
}

// ahead reads what was read already first.
type ahead struct {
	net.Conn
	read *bytes.Reader
}

func (a *ahead) Read(b []byte) (int, error) {
	if a.read.Len() > 0 {
		return a.read.Read(b)
	}
	return a.Conn.Read(b)
}

// TestHandOverHTTP: the head goes along as it came, with what is behind it. The gate records no request and drops no field.
func TestHandOverHTTP(t *testing.T) {
	h := newHanding(t, nil)
	for i, tt := range []struct {
		to   netip.AddrPort
		host string
	}{{siteWeb, "web.test"}, {site8080, "web.test:8080"}} {
		said := "POST /open/x HTTP/1.1\r\nHost: " + tt.host + "\r\nExpect: 100-continue\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" +
			"GET /behind HTTP/1.1\r\nHost: other.test\r\n\r\n"
		client := h.connect(tt.to)
		if _, err := io.WriteString(client, said); err != nil {
			t.Fatal(err)
		}
		c := h.next()
		if got := string(c.Read); got != said[:len(got)] || !strings.Contains(got, "\r\n\r\n") || c.Name != "web.test" || c.To != tt.to {
			t.Errorf("handed over %q as %s to %v", got, c.Name, c.To)
		}
		wantReason(t, h.event(audit.Connect, i), audit.Allow, "inspected by the broker")
	}
	if h.count(audit.HTTP, audit.Allow, "") != 0 {
		t.Error("the gate has recorded a request that the broker judges")
	}
}

// TestHandOverFails: whom the broker can't take is reset.
func TestHandOverFails(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*settings)
		why    *refusal
	}{
		"no broker": {func(s *settings) { s.Hand = nil }, refusedUnbrokered},
		"no room":   {func(s *settings) { s.Hand = func(context.Context, Handed) error { return os.ErrDeadlineExceeded } }, refusedBroker},
		"late": {func(s *settings) {
			s.limits.hand = time.Millisecond
			s.Hand = func(ctx context.Context, _ Handed) error { <-ctx.Done(); return ctx.Err() }
		}, refusedBroker},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHanding(t, tt.change)
			h.refused(siteTLS, string(clientHello(t, insecure("api.test"))))
			wantReason(t, h.event(audit.Connect, 0), audit.Deny, tt.why.Error())
			if s := h.Stats(); s.Allowed != 0 || s.Refused != 1 {
				t.Errorf("counted %+v", s)
			}
		})
	}
}

// TestInspectedIsJudged: what is refused of any name is refused of an inspected one, and not handed over.
func TestInspectedIsJudged(t *testing.T) {
	h := newHanding(t, nil)
	h.mu.Lock()
	h.leases["api.test"] = netip.MustParseAddr("192.0.2.99")
	h.mu.Unlock()
	h.denied(siteTLS, string(clientHello(t, insecure("api.test"))))
	wantReason(t, h.event(audit.Connect, 0), audit.Deny, refusedLease.Error())
	h.mu.Lock()
	h.leases["api.test"] = site
	h.mu.Unlock()
	h.denied(site8080, string(clientHello(t, insecure("api.test")))) // another port of it
	wantReason(t, h.event(audit.Connect, 1), audit.Deny, "the policy allows it on other ports only")
	h.refused(site8443, string(clientHello(t, insecure(""))))
	select {
	case c := <-h.handed:
		t.Errorf("handed over: %+v", c)
	default:
	}
}

// TestOtherPorts: on a port of which the policy says what a name has there, nothing else passes.
func TestOtherPorts(t *testing.T) {
	h := newHanding(t, nil)
	h.server(site8443, func(c *net.TCPConn) {
		s := tls.Server(c, h.config())
		fmt.Fprint(s, "over tls")
		s.CloseWrite()
	})
	h.server(site8080, func(c *net.TCPConn) {
		b := make([]byte, 4096)
		c.Read(b)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nplain")
	})
	s := tls.Client(h.connect(site8443), insecure("tls.test"))
	if b, err := io.ReadAll(s); string(b) != "over tls" {
		t.Errorf("tls: %q, %v", b, err)
	}
	s.Close()
	c := h.connect(site8080)
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: plain.test:8080\r\n\r\n")
	if b, err := io.ReadAll(c); !strings.HasSuffix(string(b), "plain") {
		t.Errorf("http: %q, %v", b, err)
	}
	c.Close()
	h.denied(site8080, string(clientHello(t, insecure("plain.test"))))
	h.refused(site8443, "\x01\x02\x03 something else\r\n\r\n")
	c = h.connect(site8443)
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: tls.test:8443\r\n\r\n")
	if b, err := io.ReadAll(c); !strings.HasPrefix(string(b), "HTTP/1.1 403") || !strings.Contains(string(b), refusedTLS.Error()) {
		t.Errorf("http where tls is: %q, %v", b, err)
	}
	c.Close()
	h.event(audit.Connect, 4) // the last
	for _, r := range []*refusal{refusedPlain, refusedNotHTTP, refusedTLS} {
		if h.count(audit.Connect, audit.Deny, r.Error()) != 1 {
			t.Errorf("not recorded once: %s", r.Error())
		}
	}
}

// TestInspectedBehindAnother: a connection that began with another name stays with the gate, and leads to no inspected one.
func TestInspectedBehindAnother(t *testing.T) {
	h := newHanding(t, nil)
	h.server(siteWeb, func(c *net.TCPConn) {
		b := make([]byte, 4096)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := h.connect(siteWeb)
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\nGET /open/x HTTP/1.1\r\nHost: web.test\r\n\r\n")
	b, err := io.ReadAll(c)
	if strings.Count(string(b), "HTTP/1.1 200") != 1 || !strings.Contains(string(b), refusedBehind.Error()) {
		t.Errorf("%q, %v", b, err)
	}
}

// TestRecheckInspects: what goes on past the broker ends when its name becomes an inspected one. What is handed over
// already, or about to be, is the broker's to end.
func TestRecheckInspects(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	h := newHanding(t, func(s *settings) {
		ask := s.LeasedTo
		s.LeasedTo = func(ctx context.Context, name string, to netip.AddrPort) (bool, error) {
			if name == "api.test" {
				asked <- struct{}{}
				<-goOn
			}
			return ask(ctx, name, to)
		}
	})
	h.echo(h.config())
	s := tls.Client(h.connect(siteTLS), insecure("ok.test"))
	if err := talk(s, "ok.test"); err != nil {
		t.Fatal(err)
	}
	client := h.connect(siteTLS)
	client.Write(clientHello(t, insecure("api.test")))
	<-asked
	h.policy.Store(parsePolicy(t, "ok.test GET /", "api.test GET /"))
	h.Recheck()
	if _, err := s.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("what passes unseen goes on: %v", err)
	}
	wantReason(t, h.event(audit.Connect, 0), audit.Deny, refusedRevoked.Error())
	close(goOn)
	if c := h.next(); c.Name != "api.test" {
		t.Errorf("handed over: %+v", c)
	}
	if got := h.policy.Load().Way("ok.test", policy.HTTPS); got != policy.Inspected {
		t.Errorf("the test's own policy: %v", got)
	}
}

// TestRecheckRace: a connection that is judged while a name becomes an inspected one is handed over or reset, and never
// relayed on.
func TestRecheckRace(t *testing.T) {
	h := newHanding(t, nil)
	h.echo(h.config())
	before, after := parsePolicy(t, "api.test"), parsePolicy(t, "api.test GET /")
	for range 50 {
		h.policy.Store(before)
		client := h.connect(siteTLS)
		done := make(chan bool)
		go func() {
			defer close(done)
			s := tls.Client(client, insecure("api.test"))
			if talk(s, "api.test") != nil {
				return
			}
			s.Read(make([]byte, 1)) // until it is reset
		}()
		h.policy.Store(after)
		h.Recheck()
		select {
		case c := <-h.handed:
			c.Conn.SetLinger(0)
			c.Conn.Close()
			<-done
		case <-done:
		case <-time.After(waitTime):
			t.Fatal("the connection goes on past the broker")
		}
	}
}
