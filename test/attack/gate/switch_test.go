package gate

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c" //lint:ignore SA1019 net/http knows h2c, but not by upgrade

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// switchList has an entry for each word that is about port 80.
const switchList = gateList + "up.test upgrade\nh2c.test upgrade\nearly.test upgrade\nproxy.test:80 connect\n"

// Where the names of switchList are.
var (
	upAddr    = netip.MustParseAddr("45.30.70.1")
	h2cAddr   = netip.MustParseAddr("45.30.70.2")
	proxyAddr = netip.MustParseAddr("45.30.70.3")
	early     = rig.Many("45.30.70.11", 4) // of early.test
)

// switchers is a box under switchList, and what its names lead to.
func switchers(t *testing.T) *gated {
	t.Helper()
	l := rig.NewLab(t)
	l.DNS.Set("up.test", lab.Answer{Addrs: []netip.Addr{upAddr}})
	l.DNS.Set("h2c.test", lab.Answer{Addrs: []netip.Addr{h2cAddr}})
	l.DNS.Set("proxy.test", lab.Answer{Addrs: []netip.Addr{proxyAddr}})
	l.DNS.Set("early.test", lab.Answer{Addrs: early})
	w := rig.ConfineIn(t, l, switchList, lab.BoxOptions{})
	for _, name := range []string{"ok.test", "ok2.test", "up.test", "h2c.test", "early.test", "proxy.test"} {
		w.Works("resolve", name)
	}
	return &gated{w, w.Open(lab.BoxOptions{}), &addresses{}}
}

// TestGateUpgrade: an entry that says upgrade lets a server switch, and
// nothing else.
func TestGateUpgrade(t *testing.T) {
	g := switchers(t)
	g.Lab.Web.Handle("up.test", http.HandlerFunc(echoUpgraded))
	g.Lab.Web.Handle("ok.test", http.HandlerFunc(echoUpgraded))
	g.Works("upgrade", "-n", "1000", "http://up.test/")
	if p := g.Blocked("upgrade", "http://ok.test/"); p.Detail["status"] != 403.0 {
		t.Errorf("want status 403: %s", p)
	}
	body := g.Script(`curl -s -H 'Connection: Upgrade' -H 'Upgrade: websocket' http://ok.test/`).Stdout
	if !strings.Contains(body, "allowlist line: ok.test:80 upgrade\n") {
		t.Errorf("the answer does not say what to add: %q", body)
	}

	t.Run("a browser's WebSocket", func(t *testing.T) {
		g := g.of(t)
		if !g.Program("/usr/bin/node") {
			return
		}
		g.Lab.Web.Handle("up.test", http.HandlerFunc(rig.WebSocketHello))
		r := g.Script(rig.WebSocketClient, "ws://up.test/")
		if r.Code != 0 || r.Stdout != "hello\n" {
			t.Errorf("%s", r)
		}
	})

	t.Run("h2c", func(t *testing.T) {
		g := g.of(t)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%d bytes", n)
		})
		//lint:ignore SA1019 net/http knows h2c, but not by upgrade
		defer serveAt(g.World, h2cAddr, h2c.NewHandler(h, new(http2.Server)))()
		r := g.Script(`curl -sS --http2 -w ' %{http_version}' "$1"`, "http://h2c.test/")
		if r.Stdout != "0 bytes 2" {
			t.Errorf("%s", r)
		}
		// With a body the offer is dropped: the server would have to read that first.
		if r := g.Script(`curl -sS --http2 -d body -w ' %{http_version}' "$1"`, "http://h2c.test/"); r.Stdout != "4 bytes 1.1" {
			t.Errorf("%s", r)
		}
	})

	t.Run("sent too early", func(t *testing.T) {
		for i, c := range []struct{ what, answer, reason string }{
			{"declined", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", unlisted},
			{"refused", "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n", unlisted},
			{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "switched protocols unasked"},
			{"never answered", "", ""},
		} {
			g := g.of(t)
			a := early[i]
			got := g.Tap(a, 80, "", func(got string) string {
				if strings.Contains(got, "Upgrade: websocket") {
					return c.answer
				}
				return answers(got)
			})
			ask := request("GET / HTTP/1.1", "Host: early.test", "Connection: Upgrade", "Upgrade: websocket")
			args := g.bytes(rig.At(a, 80), []byte(ask+smuggled), "-all", "-timeout", "1s")
			g.open.Poke(lab.AgentUID, args...)
			if !strings.Contains(got.String(), "smuggled") {
				t.Errorf("%s: proves nothing, arrived without confinement: %q", c.what, got)
			}
			got.Forget()
			p := g.Poke(args...)
			if came := got.String(); came != ask {
				t.Errorf("%s: arrived: %q (%s)", c.what, came, p)
			}
			if c.reason != "" {
				g.Audited(c.reason, func(e rig.Event) bool {
					return e.Verdict == "deny" && e.IP == a.String() && strings.Contains(e.Reason, c.reason)
				})
			}
		}
	})

	t.Run("the word is taken back", func(t *testing.T) {
		g := g.of(t)
		g.Lab.Web.Handle("up.test", http.HandlerFunc(echoUpgraded))
		g.Lab.Web.Forget()
		p := g.AsAgent(g.Box, "upgrade", "-n", "1000000000", "http://up.test/")
		if !rig.Eventually(10*time.Second, func() bool { return len(g.Lab.Web.Requests("up.test")) > 0 }) {
			t.Fatal("not upgraded")
		}
		if r := g.SetPolicy(strings.Replace(switchList, "up.test upgrade", "up.test", 1)); r.Code != 0 {
			t.Fatalf("%s", r)
		}
		reset(t, rig.Verdict(t, p))
		g.logged("connect", "deny", upAddr, "up.test", "no longer allowed")
	})
}

// TestGateConnect: a proxy leads where the policy leads, and no further.
func TestGateConnect(t *testing.T) {
	g := switchers(t)
	p := &proxy{lab: g.Lab}
	defer serveAt(g.World, proxyAddr, p)()
	fetch := func(url string) lab.Result {
		return g.Script(`curl -sS --max-time 10 -x http://proxy.test:80 -o /dev/null -w '%{http_connect} %{http_code}' "$1"`, url)
	}
	for _, url := range []string{"https://ok.test/", "https://ok2.test/"} {
		if r := fetch(url); r.Stdout != "200 200" {
			t.Errorf("%s: %s", url, r)
		}
	}
	if asked := p.forget(); strings.Join(asked, " ") != "ok.test:443 ok2.test:443" {
		t.Errorf("the proxy was asked for %q", asked)
	}
	for _, url := range []string{"https://evil.test/", "https://shared.test/", "https://ok.test:8443/", "https://1.1.1.1/", "https://169.254.169.254/", "https://127.0.0.1/"} {
		if r := fetch(url); r.Stdout != "403 000" {
			t.Errorf("%s: %s", url, r)
		}
		if asked := p.forget(); len(asked) > 0 {
			t.Errorf("%s: the proxy was asked for %q", url, asked)
		}
	}
	g.Audited("a tunnel", func(e rig.Event) bool {
		return e.Kind == "http" && e.Verdict == "allow" && e.Name == "ok.test" && e.Port == 443 && strings.Contains(e.Reason, "by way of proxy.test")
	})
	g.Audited("a refused tunnel", func(e rig.Event) bool {
		return e.Kind == "http" && e.Verdict == "deny" && e.Name == "evil.test" && e.Port == 443
	})
	// What is no proxy by the policy is none.
	for _, at := range []string{"ok.test:80", "up.test:80"} {
		if r := g.Script(`curl -sS --max-time 10 -x "http://$1" -o /dev/null -w '%{http_connect}' https://ok.test/`, at); r.Stdout != "403" {
			t.Errorf("by way of %s: %s", at, r)
		}
	}
	if g.Program("/usr/bin/python3") {
		r := g.Script(`https_proxy=http://proxy.test:80 SSL_CERT_FILE=` + rig.Bundle + ` /usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen("https://ok.test/").status)'`)
		if r.Stdout != "200\n" {
			t.Errorf("python: %s", r)
		}
	}
}

// serveAt serves HTTP on port 80 of one address of the internet until the function that it
// returns is called.
func serveAt(w *rig.World, a netip.Addr, h http.Handler) (stop func()) {
	w.Helper()
	l, err := w.Lab.Internet.Listen("tcp4", rig.At(a, 80))
	rig.Must(w.T, err)
	s := &http.Server{Handler: h}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	return func() { s.Close(); serving.Wait() }
}

// proxy is an HTTP proxy that does CONNECT and nothing else.
type proxy struct {
	lab   *lab.Lab
	mu    sync.Mutex
	asked []string
}

func (p *proxy) forget() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.RequestURI)
	p.mu.Unlock()
	host, port, err := net.SplitHostPort(r.Host)
	if r.Method != http.MethodConnect || err != nil {
		http.Error(w, "not a tunnel", http.StatusMethodNotAllowed)
		return
	}
	a := lab.Names()[host]
	if len(a) == 0 {
		http.Error(w, "no such host", http.StatusBadGateway)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lab.Patience)
	defer cancel()
	far, err := p.lab.Internet.Dial(ctx, "tcp", net.JoinHostPort(a[0].String(), port), zeroAddrPort)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	fmt.Fprint(near, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(far, buffered)
		far.Close()
	}()
	_, _ = io.Copy(near, far)
}
