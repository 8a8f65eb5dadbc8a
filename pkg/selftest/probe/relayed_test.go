package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// On a relayed port an accepted connection is no proof of anything, and an answer
// is.
func TestRelayed(t *testing.T) {
	forbidden := func(body string) string {
		return fmt.Sprintf("HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	}
	reset := func(c *net.TCPConn) { c.SetLinger(0) }
	afterHello := func(then func(c *net.TCPConn)) func(*net.TCPConn) {
		return func(c *net.TCPConn) {
			c.Read(make([]byte, 4096))
			then(c)
		}
	}
	say := func(s string) func(*net.TCPConn) {
		return afterHello(func(c *net.TCPConn) { io.WriteString(c, s) })
	}
	for _, tt := range []struct {
		what  string
		http  bool
		serve func(*net.TCPConn)
		got   string
	}{
		{"tls: reset at once", false, reset, selftest.Blocked},
		{"tls: reset after the hello", false, afterHello(reset), selftest.Blocked},
		{"tls: end of stream", false, afterHello(func(*net.TCPConn) {}), selftest.Blocked},
		{"tls: silence", false, func(c *net.TCPConn) { io.Copy(io.Discard, c) }, selftest.Blocked},
		{"tls: the wall's alert", false, say(deniedHere), selftest.Blocked},
		{"tls: more than the wall's alert", false, say(deniedHere + "x"), selftest.Reachable},
		{"tls: another alert", false, say("\x15\x03\x03\x00\x02\x02\x28"), selftest.Reachable},
		{"tls: anything", false, say("x"), selftest.Reachable},
		{"tls: the wall's words", false, say(forbidden(refusedHere)), selftest.Reachable},
		{"http: reset", true, afterHello(reset), selftest.Blocked},
		{"http: refused by the wall", true, say(forbidden(refusedHere + "\nwhy: not in the allowlist\n")), selftest.Blocked},
		{"http: refused by a server", true, say(forbidden("go away")), selftest.Reachable},
		{"http: the words in a header", true, say("HTTP/1.1 403 Forbidden\r\nX: " + refusedHere + "\r\n\r\n"), selftest.Reachable},
		{"http: an answer with the words", true, say("HTTP/1.1 200 OK\r\n\r\n" + refusedHere), selftest.Reachable},
	} {
		t.Run(tt.what, func(t *testing.T) {
			a := serveRelay(t, tt.serve)
			p := plan{selftest.Plan{Denied: []string{"example.com"}, Relayed: []uint16{a.Port()}}}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var o outcome
			if tt.http {
				conn, err := net.Dial("tcp", a.String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				o = talk(ctx, conn, 80, p.name())
			} else {
				o = p.connectAddr(a)(ctx)
			}
			if o.got != tt.got {
				t.Errorf("%+v, want %s", o, tt.got)
			}
		})
	}
}

// Real servers answer.
func TestRelayedServer(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	var sni atomic.Value
	s.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { sni.Store(h.ServerName); return nil, nil }}
	s.StartTLS()
	defer s.Close()
	a := netip.MustParseAddrPort(s.Listener.Addr().String())
	p := plan{selftest.Plan{Required: []selftest.Target{{Name: "192.0.2.1"}, {Name: "ok.test"}}, Relayed: []uint16{a.Port()}}}
	if o := p.connectAddr(a)(t.Context()); o.got != selftest.Reachable {
		t.Errorf("%+v", o)
	}
	if sni.Load() != "ok.test" {
		t.Errorf("asked for %q", sni.Load())
	}
	silent := serveRelay(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	if o := p.connectAddr(silent)(t.Context()); o.got != selftest.Reachable {
		t.Errorf("accepted on a port that is not relayed: %+v", o)
	}
	h := httptest.NewServer(http.NotFoundHandler())
	defer h.Close()
	conn, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if o := talk(t.Context(), conn, 80, p.name()); o.got != selftest.Reachable {
		t.Errorf("%+v", o)
	}
}

// A server that keeps silent takes no time from the other addresses of a name:
// each is tried, and one that answers is found out.
func TestEachAddressIsTried(t *testing.T) {
	silent := serveRelay(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	answering := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), silent.Port())
	listenTCP(t, answering, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		io.WriteString(c, "x")
	})
	for what, tt := range map[string]struct {
		addrs []string
		got   string
	}{
		"silent first": {[]string{"127.0.0.1", "127.0.0.2"}, selftest.Reachable},
		"silent last":  {[]string{"127.0.0.2", "127.0.0.1"}, selftest.Reachable},
		"all silent":   {[]string{"127.0.0.1"}, selftest.Blocked},
	} {
		dnsAt := freeUDP(t)
		serveDNS(t, "udp", dnsAt, func(q, r *dns.Msg) {
			for _, addr := range tt.addrs {
				if q.Question[0].Qtype == dns.TypeA {
					r.Answer = append(r.Answer, a(q.Question[0].Name, addr))
				}
			}
		})
		p := plan{selftest.Plan{Denied: []string{"example.com"}, Relayed: []uint16{silent.Port()}}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		o := p.connectName(resolverFor([]netip.AddrPort{dnsAt}), selftest.Target{Name: "two.test", Port: silent.Port()})(ctx)
		cancel()
		if o.got != tt.got {
			t.Errorf("%s: %+v, want %s", what, o, tt.got)
		}
	}
}

// freeUDP returns a port that nobody has.
func freeUDP(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// serveRelay accepts connections, has serve treat each, and closes it.
func serveRelay(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}
