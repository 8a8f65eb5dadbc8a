package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// talk sends a line over TLS and wants it back.
func talk(c *tls.Conn, name string) error {
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	b := bufio.NewReader(c)
	for _, want := range []string{name, "hello"} {
		got, err := b.ReadString('\n')
		if err != nil {
			return err
		}
		if got != want+"\n" {
			return fmt.Errorf("got %q, want %q", got, want)
		}
	}
	return nil
}

func TestTLSPasses(t *testing.T) {
	r := newRig(t, nil)
	r.echo(r.config())
	for i, tt := range []struct {
		label, name string
		change      func(*tls.Config)
	}{
		{"1.3", "ok.test", func(*tls.Config) {}},
		{"1.2", "ok.test", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }},
		{"without post-quantum", "ok.test", func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }},
		{"upper case", "OK.Test", func(*tls.Config) {}},
		{"wildcard", "a.wild.test", func(*tls.Config) {}},
		{"only 443", "tls.test", func(*tls.Config) {}},
		{"alpn", "ok.test", func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }},
	} {
		config := insecure(tt.name)
		tt.change(config)
		c := tls.Client(r.connect(siteTLS), config)
		if err := talk(c, tt.name); err != nil {
			t.Fatalf("%s: %v", tt.label, err)
		}
		c.CloseWrite()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: at the end %v", tt.label, err)
		}
		c.Close()
		e := r.event(audit.Connect, i)
		wantReason(t, e, audit.Allow, "closed")
		if e.Name != strings.ToLower(tt.name) || e.IP != "192.0.2.1" || e.Port != 443 || e.Rule == "" {
			t.Errorf("%s: recorded %+v", tt.label, e)
		}
	}
}

func TestTLSResumption(t *testing.T) {
	r := newRig(t, nil)
	r.echo(r.config())
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := insecure("ok.test")
		config.MaxVersion = version
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for i := range 2 {
			c := tls.Client(r.connect(siteTLS), config)
			if err := talk(c, "ok.test"); err != nil {
				t.Fatal(err)
			}
			if got := c.ConnectionState().DidResume; got != (i == 1) {
				t.Errorf("version %x, connection %d: resumed %v", version, i, got)
			}
			c.Close()
		}
	}
}

func TestTLSHTTP2(t *testing.T) {
	r := newRig(t, nil)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.Proto) }), TLSConfig: r.config()}
	l := listen(t)
	r.behind(siteTLS, l)
	go s.ServeTLS(l, "", "")
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: insecure(""),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return r.connect(siteTLS), nil }}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("https://ok.test/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	if string(body) != "HTTP/2.0" {
		t.Errorf("got %q", body)
	}
}

// TestE45TLSEveryByte sends the first flight one byte at a time, with early data
// behind it, and wants it to arrive unchanged.
func TestE45TLSEveryByte(t *testing.T) {
	r := newRig(t, nil)
	got := make(chan []byte, 1)
	r.server(siteTLS, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- b
	})
	early := slices.Concat([]byte{20, 3, 3, 0, 1, 1}, []byte{23, 3, 3, 0, 5}, []byte("early"))
	config := insecure("ok.test")
	sent := append(clientHello(t, config), early...)
	c := r.connect(siteTLS)
	for i := range sent {
		if _, err := c.Write(sent[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	c.CloseWrite()
	if b := <-got; !bytes.Equal(b, sent) {
		t.Errorf("%d bytes arrived of %d, or others", len(b), len(sent))
	}
}

func TestTLSRefusals(t *testing.T) {
	r := newRig(t, func(c *settings) { c.limits.hello = 200 * time.Millisecond })
	r.echo(r.config())
	for i, tt := range []struct {
		label, sent, reason, name string
	}{
		{"E26 another name at the address", string(helloFor("other.test")), "not in the allowlist", "other.test"},
		{"E26 leased but not allowed", string(helloFor("evil.test")), "not in the allowlist", "evil.test"},
		{"E26 allowed but elsewhere", string(helloFor("away.test")), refusedLease.Error(), "away.test"},
		{"denied", string(helloFor("no.wild.test")), "denied by the policy", "no.wild.test"},
		{"E44 no name", string(records(handshake(), 1<<14)), refusedNoSNI.Error(), ""},
		{"E44 an address", string(helloFor("192.0.2.1")), "it is an address", "192.0.2.1"},
		{"E44 an address in brackets", string(helloFor("[2001:db8::1]")), "it is an address", "[2001:db8::1]"},
		{"E44 256 bytes", string(helloFor(strings.Repeat("a", 256))), "the name is longer", strings.Repeat("a", 256)},
		{"a zero byte", string(helloFor("ok.test\x00.evil.test")), refusedName.Error(), "ok.test\x00.evil.test"},
		{"not ascii", string(helloFor("ök.test")), refusedName.Error(), "ök.test"},
		{"a space", string(helloFor("ok.test ")), refusedName.Error(), "ok.test "},
		{"E46 ech behind another name", string(records(handshake([]byte{0xfe, 0x0d, 0, 4, 0, 1, 2, 3}, sni(entry(0, "cdn.test"))), 1<<14)), "not in the allowlist", "cdn.test"},
		{"E47 ssh", "SSH-2.0-x\r\n", refusedNotTLS.Error(), ""},
		{"E47 http", "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", refusedNotTLS.Error(), ""},
		{"half a hello", string(helloFor("ok.test")[:30]), refusedTimeout.Error(), ""},
		{"silence", "", refusedTimeout.Error(), ""},
	} {
		if tt.name != "" { // a hello that was judged
			r.denied(siteTLS, tt.sent)
		} else {
			r.refused(siteTLS, tt.sent)
		}
		e := r.event(audit.Connect, i)
		wantReason(t, e, audit.Deny, tt.reason)
		if e.Name != tt.name {
			t.Errorf("%s: recorded %+v", tt.label, e)
		}
	}
	if n := r.dials(); n != 0 {
		t.Errorf("%d connections were made onward", n)
	}
}

func TestRefusedWhateverIsInside(t *testing.T) {
	for _, tt := range []struct {
		label  string
		change func(*settings)
		to     string
		v      audit.Verdict
		reason string
		denied bool // by the policy, so that the client is told
	}{
		{"the keeper does not answer", func(c *settings) {
			c.LeasedTo = func(context.Context, string, netip.AddrPort) (bool, error) { return true, errors.New("gone") }
		}, "tls", audit.Deny, refusedKeeper.Error(), false},
		{"the keeper takes too long", func(c *settings) {
			c.limits.held = time.Millisecond
			c.LeasedTo = func(ctx context.Context, _ string, _ netip.AddrPort) (bool, error) {
				<-ctx.Done()
				return true, ctx.Err()
			}
		}, "tls", audit.Deny, refusedKeeper.Error(), false},
		{"no original destination", func(c *settings) {
			c.original = func(*net.TCPConn) (netip.AddrPort, error) { return siteTLS, errors.New("not tracked") }
		}, "tls", audit.Deny, refusedNoOriginal.Error(), false},
		{"made to the gate itself", func(c *settings) {
			c.original = func(c *net.TCPConn) (netip.AddrPort, error) { return c.LocalAddr().(*net.TCPAddr).AddrPort(), nil }
		}, "tls", audit.Deny, refusedDirect.Error(), false},
		{"loopback", func(c *settings) {
			c.LeasedTo = func(context.Context, string, netip.AddrPort) (bool, error) { return true, nil }
			c.original = func(*net.TCPConn) (netip.AddrPort, error) {
				return netip.MustParseAddrPort("127.0.0.1:443"), nil
			}
		}, "tls", audit.Deny, refusedAddress.Error(), true},
		{"metadata", func(c *settings) {
			c.LeasedTo = func(context.Context, string, netip.AddrPort) (bool, error) { return true, nil }
			c.original = func(*net.TCPConn) (netip.AddrPort, error) {
				return netip.MustParseAddrPort("169.254.169.254:443"), nil
			}
		}, "tls", audit.Deny, refusedAddress.Error(), true},
		{"another port", nil, "ssh", audit.Deny, "the policy allows it on other ports only", true},
		{"the server refuses", nil, "tls", audit.Allow, "could not connect: connection refused", false},
		{"the server is silent", func(c *settings) {
			c.limits.dial = time.Millisecond
			c.dial = func(ctx context.Context, _ netip.AddrPort) (*net.TCPConn, error) { <-ctx.Done(); return nil, ctx.Err() }
		}, "tls", audit.Allow, "could not connect: ", false},
	} {
		t.Run(tt.label, func(t *testing.T) {
			r := newRig(t, tt.change)
			to := siteTLS
			if tt.to == "ssh" {
				to = siteSSH
			}
			if tt.denied {
				r.denied(to, string(helloFor("ok.test")))
			} else {
				r.refused(to, string(helloFor("ok.test")))
			}
			wantReason(t, r.event(audit.Connect, 0), tt.v, tt.reason)
		})
	}
}

// tamper is a client's connection that puts another name into every hello but
// the first.
type tamper struct {
	net.Conn
	from, to string
	hellos   int
}

func (c *tamper) Write(p []byte) (int, error) {
	n := len(p)
	if i := bytes.Index(p, []byte(c.from)); i >= 0 {
		if c.hellos++; c.hellos > 1 {
			p = bytes.Replace(p, []byte(c.from), []byte(c.to), 1)
		}
	}
	_, err := c.Conn.Write(p)
	return n, err
}

func TestTLSRetry(t *testing.T) {
	r := newRig(t, nil)
	var mu sync.Mutex
	var seen []byte
	r.server(siteTLS, func(c *net.TCPConn) {
		config := r.config()
		config.CurvePreferences = []tls.CurveID{tls.CurveP384}
		s := tls.Server(&tap{c, &mu, &seen}, config)
		if s.Handshake() == nil {
			fmt.Fprintf(s, "%s\n", s.ConnectionState().ServerName)
			io.Copy(s, s)
		}
	})
	config := insecure("ok.test")
	config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP384}
	count := &tamper{Conn: r.connect(siteTLS), from: "ok.test", to: "ok.test"}
	c := tls.Client(count, config)
	if err := talk(c, "ok.test"); err != nil {
		t.Fatal(err)
	}
	if count.hellos != 2 {
		t.Fatalf("%d hellos: there was no retry", count.hellos)
	}
	c.Close()
	r.event(audit.Connect, 0)

	c = tls.Client(&tamper{Conn: r.connect(siteTLS), from: "ok.test", to: "ko.test"}, config)
	if err := c.Handshake(); err == nil {
		t.Error("the second hello may have another name")
	}
	wantReason(t, r.event(audit.Connect, 1), audit.Deny, refusedRetry.Error())
	mu.Lock()
	defer mu.Unlock()
	if bytes.Contains(seen, []byte("ko.test")) {
		t.Error("the other name reached the server")
	}
}

// tap keeps what is read.
type tap struct {
	net.Conn
	mu   *sync.Mutex
	seen *[]byte
}

func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	*c.seen = append(*c.seen, p[:n]...)
	c.mu.Unlock()
	return n, err
}

// TestTLSSecondHelloUnasked sends the second hello before the server said
// anything: it is held until it is known what it is.
func TestTLSSecondHelloUnasked(t *testing.T) {
	r := newRig(t, nil)
	first := helloFor("ok.test")
	release := make(chan struct{})
	got := make(chan []byte, 1)
	r.server(siteTLS, func(c *net.TCPConn) {
		b := make([]byte, len(first))
		io.ReadFull(c, b)
		<-release
		hrr := slices.Concat([]byte{2, 0, 0, 80, 3, 3}, retryRandom(), make([]byte, 48))
		c.Write(records(hrr, 1<<14))
		rest, _ := io.ReadAll(c)
		got <- rest
	})
	c := r.connect(siteTLS)
	c.Write(append(first, helloFor("ko.test")...))
	close(release)
	if rest := <-got; len(rest) != 0 {
		t.Errorf("%q reached the server", rest)
	}
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedRetry.Error())
}

// TestTLSAlertArrives: what a server says before it gives up is passed on.
func TestTLSAlertArrives(t *testing.T) {
	r := newRig(t, nil)
	alert := []byte{21, 3, 3, 0, 2, 2, 40}
	r.server(siteTLS, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, len(helloFor("ok.test"))))
		c.Write(alert)
	})
	c := r.connect(siteTLS)
	c.Write(helloFor("ok.test"))
	b, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(b, alert) {
		t.Errorf("%x, %v", b, err)
	}
}
