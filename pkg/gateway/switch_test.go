package gateway

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// The requests of these tests. The last one is denied.
const (
	askSocket  = "GET /ws HTTP/1.1\r\nHost: up.test\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
	askTunnel  = "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\n"
	askPlain   = "GET /plain HTTP/1.1\r\nHost: up.test\r\n\r\n"
	askEvil    = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	switching  = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	tunnelling = "HTTP/1.1 200 Connection established\r\nContent-Length: 7\r\n\r\n"
	empty      = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
)

// switchRig has an entry that may switch protocols, and a proxy.
func switchRig(t *testing.T, more ...string) *rig {
	r := newRig(t, nil)
	r.policy.Store(parsePolicy(t, append([]string{"up.test upgrade", "proxy.test:80 connect", "ok.test", "192.0.2.7:443"}, more...)...))
	r.leases["up.test"], r.leases["proxy.test"] = site, site
	return r
}

// far is the server's end of the one connection that comes.
func (r *rig) far() chan *net.TCPConn {
	came, done := make(chan *net.TCPConn), make(chan struct{})
	r.t.Cleanup(func() { close(done) })
	r.server(siteWeb, func(c *net.TCPConn) {
		c.SetDeadline(time.Now().Add(waitTime))
		came <- c
		<-done
	})
	return came
}

// reads fails unless the next bytes from c are these.
func reads(t *testing.T, c io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b[:n], err, want)
	}
}

// silent fails if anything comes from c soon.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	defer c.SetReadDeadline(time.Now().Add(waitTime))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want nothing yet", n, err)
	}
}

func say(t *testing.T, c io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// TestSwitch: once the server has said so, and not before, bytes pass as they are.
func TestSwitch(t *testing.T) {
	for _, tt := range []struct{ label, ask, answer string }{
		{"upgrade", askSocket, switching},
		{"upgrade after a hint", askSocket, "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" + switching},
		{"connect", askTunnel, tunnelling},
	} {
		t.Run(tt.label, func(t *testing.T) {
			r := switchRig(t)
			came := r.far()
			client := r.connect(siteWeb)
			const early = "\x00not http\r\n\r\n"
			say(t, client, tt.ask+early)
			server := <-came
			reads(t, server, tt.ask)
			silent(t, server)
			say(t, server, tt.answer+"\x01raw")
			reads(t, client, tt.answer+"\x01raw")
			reads(t, server, early)
			say(t, client, askEvil)
			reads(t, server, askEvil)
			say(t, server, "\x02more")
			reads(t, client, "\x02more")
			client.CloseWrite()
			if _, err := server.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the end: %v", err)
			}
			say(t, server, "last")
			reads(t, client, "last")
			server.CloseWrite()
			if _, err := client.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the end: %v", err)
			}
			wantReason(t, r.event(audit.Connect, 0), audit.Allow, "closed")
		})
	}
}

// TestSwitchDeclined: without the server's agreement the connection stays HTTP,
// and what the client sent meanwhile is judged as such.
func TestSwitchDeclined(t *testing.T) {
	for _, tt := range []struct{ label, ask, answer string }{
		{"upgrade ignored", askSocket, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"},
		{"upgrade refused", askSocket, "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n"},
		{"upgrade, an odd 1xx", askSocket, "HTTP/1.1 199 x\r\nUpgrade: websocket\r\n\r\n" + empty},
		{"proxy wants a password", askTunnel, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno"},
		{"proxy fails", askTunnel, "HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	} {
		t.Run(tt.label, func(t *testing.T) {
			r := switchRig(t)
			came := r.far()
			client := r.connect(siteWeb)
			say(t, client, tt.ask+askPlain+askEvil)
			server := <-came
			reads(t, server, tt.ask)
			silent(t, server)
			say(t, server, tt.answer)
			reads(t, client, tt.answer)
			reads(t, server, askPlain)
			silent(t, server)
			say(t, server, empty)
			reads(t, client, empty+"HTTP/1.1 403 Forbidden\r\n")
			if b, _ := io.ReadAll(server); len(b) != 0 {
				t.Errorf("the server got %q", b)
			}
		})
	}
}

// TestSwitchOnlyAsOffered: a server that switches to something else, or says
// what can't be understood, gets nothing more.
func TestSwitchOnlyAsOffered(t *testing.T) {
	for _, tt := range []struct{ label, ask, answer, reason string }{
		{"another protocol", askSocket, "HTTP/1.1 101 x\r\nUpgrade: h2c\r\n\r\n", "the server switched"},
		{"one more protocol", askSocket, "HTTP/1.1 101 x\r\nUpgrade: websocket, x\r\n\r\n", "the server switched"},
		{"two fields", askSocket, "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n\r\n", "the server switched"},
		{"no protocol", askSocket, "HTTP/1.1 101 x\r\n\r\n", "the server switched"},
		{"the one before was asked", askPlain + askSocket, switching, "the server switched"},
		{"in answer to connect", askTunnel, switching, "the server switched"},
		{"bare line feeds", askSocket, strings.ReplaceAll(switching, "\r\n", "\n"), ""},
		{"no length", askSocket, "HTTP/1.1 200 OK\r\n\r\n", ""},
		{"not http", askTunnel, "OK\r\n\r\n", ""},
	} {
		t.Run(tt.label, func(t *testing.T) {
			r := switchRig(t)
			came := r.far()
			client := r.connect(siteWeb)
			say(t, client, tt.ask+"smuggled")
			server := <-came
			reads(t, server, tt.ask)
			say(t, server, tt.answer)
			if tt.reason != "" {
				wantReset(t, client)
				wantReason(t, r.event(audit.Connect, 0), audit.Deny, tt.reason)
			} else {
				reads(t, client, tt.answer)
				say(t, client, "smuggled")
				silent(t, server)
				client.Close()
			}
			if b, _ := io.ReadAll(server); len(b) != 0 {
				t.Errorf("the server got %q", b)
			}
		})
	}
}

// TestSwitchRefused: only what an entry says, and the answer tells which line
// would say so.
func TestSwitchRefused(t *testing.T) {
	r := switchRig(t, "tls.test:443", "away.test:80 connect", "api.test:443 GET /open/**", "*.api.test:8443 read")
	came := r.far()
	to := func(target string) string { return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n" }
	for i, tt := range []struct{ send, why, line, name string }{
		{strings.Replace(askSocket, "up.test", "ok.test", 1), refusedUpgrade.Error(), "ok.test:80 upgrade", "ok.test"},
		{strings.Replace(askSocket, "up.test", "evil.test", 1), "not in the allowlist", "evil.test", "evil.test"},
		{strings.Replace(askSocket, "up.test", "proxy.test", 1), refusedUpgrade.Error(), "proxy.test:80 upgrade", "proxy.test"},
		{strings.Replace(askSocket, "GET", "POST", 1)[:len(askSocket)-1] + "Content-Length: 1\r\n\r\nx", refusedUpgradeBody.Error(), "", "up.test"},
		{to("evil.test:443"), "not in the allowlist", "evil.test", "evil.test"},
		{to("evil.test:22"), "not in the allowlist", "evil.test:22", "evil.test"},
		{to("ok.test:22"), "the policy allows it on other ports only", "ok.test:22", "ok.test"},
		{to("API.test:443"), refusedTunnel.Error(), "", "api.test"}, // whose requests nobody would judge
		{to("x.api.test:8443"), refusedTunnel.Error(), "", "x.api.test"},
		{to("192.0.2.8:443"), "not in the allowlist", "192.0.2.8:443", "192.0.2.8"},
		{to("169.254.169.254:80"), "metadata", "", "169.254.169.254"},
		{to("127.0.0.1:443"), "loopback", "", "127.0.0.1"},
		{to("0x7f.1:443"), "a name can't end in a number", "", "0x7f.1"},
		{to("evil..test:443"), "the name has an empty label", "", "evil..test"},
	} {
		got := r.raw(tt.send)
		_, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(body, "host: "+tt.name+"\nwhy: "+tt.why) ||
			strings.Contains(body, "allowlist line: "+tt.line+"\n") != (tt.line != "") || strings.Contains(body, "allowlist line") != (tt.line != "") {
			t.Errorf("%q: %s", tt.send, got)
		}
		if e := r.event(audit.HTTP, i); e.Verdict != audit.Deny || e.Name != tt.name || !strings.Contains(e.Reason, tt.why) {
			t.Errorf("%q: recorded %+v", tt.send, e)
		}
	}
	select {
	case <-came:
		t.Error("a connection was made onward")
	default:
	}

	// A proxy is one at its own address only, and a name that is no proxy is none.
	r.policy.Store(parsePolicy(t, "ok.test", "away.test:80 connect"))
	if got := r.raw(askTunnel); !strings.Contains(got, "why: "+refusedConnect.Error()) || strings.Contains(got, "allowlist line") {
		t.Errorf("%s", got)
	}
	r.policy.Store(parsePolicy(t, "ok.test", "proxy.test:80 connect", "!proxy.test:80"))
	if got := r.raw(askTunnel); !strings.Contains(got, "why: denied by the policy") {
		t.Errorf("%s", got)
	}
}

func TestConnectRecord(t *testing.T) {
	r := switchRig(t)
	came := r.far()
	for i, tt := range []struct{ target, name, rule string }{{"OK.test:443", "ok.test", "allowlist.txt:3"}, {"192.0.2.7:443", "192.0.2.7", "allowlist.txt:4"}} {
		client := r.connect(siteWeb)
		say(t, client, "CONNECT "+tt.target+" HTTP/1.0\r\n\r\n")
		server := <-came
		reads(t, server, "CONNECT "+tt.target+" HTTP/1.0\r\n\r\n")
		e := r.event(audit.HTTP, i)
		if e.Name != tt.name || e.Port != 443 || e.IP != site.String() || e.Rule != tt.rule || e.Verdict != audit.Allow ||
			e.Reason != "CONNECT by way of proxy.test (allowlist.txt:2): allowed by the policy" {
			t.Errorf("recorded %+v", e)
		}
		abort(client)
		if e := r.event(audit.Connect, i); e.Name != "proxy.test" || e.Port != 80 || e.Rule != "allowlist.txt:2" {
			t.Errorf("recorded %+v", e)
		}
	}
}

// TestSwitchGivenUp: the server learns at once that a client went away, or has
// no more to say, while it was thinking.
func TestSwitchGivenUp(t *testing.T) {
	for _, early := range []int{0, 100} {
		r := switchRig(t)
		came := r.far()
		client := r.connect(siteWeb)
		say(t, client, askSocket+strings.Repeat("x", early))
		server := <-came
		reads(t, server, askSocket)
		abort(client)
		wantReset(t, server)
	}
	r := switchRig(t)
	came := r.far()
	client := r.connect(siteWeb)
	say(t, client, askSocket)
	server := <-came
	reads(t, server, askSocket)
	client.CloseWrite()
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	say(t, server, empty)
	reads(t, client, empty)
}

// TestSwitchHoldsLittle: what the client says too early waits, however much.
func TestSwitchHoldsLittle(t *testing.T) {
	r := switchRig(t)
	came := r.far()
	client := r.connect(siteWeb)
	const size = 1 << 20
	go io.WriteString(client, askSocket+strings.Repeat("x", size))
	server := <-came
	reads(t, server, askSocket)
	silent(t, server)
	say(t, server, switching)
	reads(t, client, switching)
	if n, err := io.CopyN(io.Discard, server, size); err != nil {
		t.Errorf("%d bytes came: %v", n, err)
	}
}

// TestOfferDropped: one who offers HTTP/2 is served by HTTP/1.1, unless an entry
// says otherwise.
func TestOfferDropped(t *testing.T) {
	const offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
	for _, tt := range []struct{ label, send, want string }{
		{"dropped", "GET / HTTP/1.1\r\nHost: ok.test\r\n" + offer + "\r\n", "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"},
		{"others stay", "GET / HTTP/1.1\r\nConnection: close, upgrade , x\r\nHost: ok.test\r\nUpgrade: h2c\r\nX: y\r\n\r\n",
			"GET / HTTP/1.1\r\nConnection: close, x\r\nHost: ok.test\r\nX: y\r\n\r\n"},
		{"with a body", "POST / HTTP/1.1\r\nHost: up.test\r\n" + offer + "Content-Length: 2\r\n\r\nhi", "POST / HTTP/1.1\r\nHost: up.test\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"},
		{"allowed", "GET / HTTP/1.1\r\nHost: up.test\r\n" + offer + "\r\n", "GET / HTTP/1.1\r\nHost: up.test\r\n" + offer + "\r\n"},
	} {
		t.Run(tt.label, func(t *testing.T) {
			r := switchRig(t)
			came := r.far()
			client := r.connect(siteWeb)
			say(t, client, tt.send+strings.Replace(askPlain, "up.test", "ok.test", 1))
			server := <-came
			reads(t, server, tt.want)
			if say(t, server, empty); tt.label == "with a body" {
				return // which ends the connection: TestRequestWithBodyIsTheLast
			}
			reads(t, server, "GET /plain")
		})
	}
}

// TestRecheckSwitched: a connection that has left HTTP depends on the word that
// let it, and a tunnel on what it leads to.
func TestRecheckSwitched(t *testing.T) {
	for _, tt := range []struct {
		ask, answer string
		keeps, cuts []string
	}{
		{askSocket, switching, []string{"*.up.test upgrade", "up.test"}, []string{"up.test"}},
		{askSocket, switching, []string{"up.test:80 upgrade"}, []string{"*.test.example upgrade"}},
		{askTunnel, tunnelling, []string{"proxy.test connect", "*.ok.test"}, []string{"proxy.test connect"}},
		{askTunnel, tunnelling, []string{"proxy.test connect", "ok.test:443"}, []string{"proxy.test", "ok.test"}},
	} {
		r := switchRig(t)
		came := r.far()
		client := r.connect(siteWeb)
		say(t, client, tt.ask)
		server := <-came
		reads(t, server, tt.ask)
		say(t, server, tt.answer)
		reads(t, client, tt.answer)
		r.policy.Store(parsePolicy(t, tt.keeps...))
		r.Recheck()
		say(t, client, "still")
		reads(t, server, "still")
		r.policy.Store(parsePolicy(t, tt.cuts...))
		r.Recheck()
		wantReset(t, client)
		wantReset(t, server)
	}
}

// TestProxyClient: net/http reaches a TLS server by way of a proxy behind the gate.
func TestProxyClient(t *testing.T) {
	r := switchRig(t)
	r.echo(r.config())
	r.server(siteWeb, func(c *net.TCPConn) {
		b := bufio.NewReader(c)
		for {
			q, err := http.ReadRequest(b)
			if err != nil {
				return
			}
			if q.Header.Get("Proxy-Authorization") == "" {
				say(t, c, "HTTP/1.1 407 x\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			r.mu.Lock()
			addr := r.servers[siteTLS]
			r.mu.Unlock()
			far, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
			if err != nil {
				return
			}
			say(t, c, "HTTP/1.1 200 OK\r\n\r\n")
			go func() { io.Copy(far, b); far.CloseWrite() }()
			io.Copy(c, far)
			c.CloseWrite()
			return
		}
	})
	c := r.connect(siteWeb)
	b := bufio.NewReader(c)
	say(t, c, askTunnel)
	if a, err := http.ReadResponse(b, nil); err != nil || a.StatusCode != 407 {
		t.Fatalf("%v, %v", a, err)
	}
	say(t, c, strings.Replace(askTunnel, "\r\n\r\n", "\r\nProxy-Authorization: Basic eDp5\r\n\r\n", 1))
	if a, err := http.ReadResponse(b, &http.Request{Method: "CONNECT"}); err != nil || a.StatusCode != 200 {
		t.Fatalf("%v, %v", a, err)
	}
	if err := talk(tls.Client(c, insecure("ok.test")), "ok.test"); err != nil {
		t.Error(err)
	}
}

// TestSwitchMonitored: monitor mode opens names, to proxies too, and no way out
// of HTTP.
func TestSwitchMonitored(t *testing.T) {
	r := newRig(t, func(c *settings) { c.Monitor = true })
	r.policy.Store(parsePolicy(t, "proxy.test:80 connect"))
	r.leases["proxy.test"] = site
	came := r.far()
	to := func(target string) string { return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n" }
	for _, send := range []string{to("169.254.169.254:80"), to("192.0.2.9:443"), strings.Replace(askSocket, "up.test", "evil.test", 1), strings.Replace(askSocket, "up.test", "proxy.test", 1)} {
		if got := r.raw(send); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
			t.Errorf("%q: %q", send, got)
		}
	}
	client := r.connect(siteWeb)
	say(t, client, to("evil.test:443"))
	server := <-came
	reads(t, server, to("evil.test:443"))
	if e := r.event(audit.HTTP, 4); e.Verdict != audit.Allow || e.Enforce != audit.Deny || e.Name != "evil.test" {
		t.Errorf("recorded %+v", e)
	}
}
