package attack

import (
	"bufio"
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

	"github.com/agent-init/agent-init/internal/lab"
)

// actor is a proxy of the test's own, in the place of the corporation's.
type actor struct {
	mu    sync.Mutex
	says  func(net.Conn, *http.Request) // what it does with a request
	asked []string
	shown []string // what it was shown as a credential, each once
}

func (a *actor) plays(says func(net.Conn, *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says = says
}

func (a *actor) authorizations() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Compact(slices.Clone(a.shown))
}

func (a *actor) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

// act has an actor listen where the proxy is.
func act(t *testing.T, l *lab.Lab) *actor {
	t.Helper()
	l.Claim("tcp", squidPort)
	listener, err := l.Internet.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(squidAddr), squidPort).String())
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	a := &actor{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				a.mu.Lock()
				a.asked = append(a.asked, r.Method+" "+r.Host)
				a.shown = append(a.shown, r.Header.Get("Proxy-Authorization"))
				says := a.says
				a.mu.Unlock()
				says(conn, r)
			}()
		}
	}()
	return a
}

// tells is a proxy that answers with a text, and closes.
func tells(text string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	}
}

// TestProxyHostile: whatever the proxy says, or doesn't, a connection ends with the reason in the log, and never goes
// straight. A proxy that is gone is one of these.
func TestProxyHostile(t *testing.T) {
	l := newLab(t)
	a := act(t, l)
	a.plays(tells("HTTP/1.1 503 Not now\r\n\r\n"))
	c := behind(t, l, "", byProxy, "ok.test\nok2.test\n")
	for i, tc := range []struct {
		what, reason string
		says         func(net.Conn, *http.Request)
	}{
		{"refuses", "the proxy refused (403)", tells("HTTP/1.1 403 Forbidden\r\n\r\n<html>")},
		{"wants a credential", "credential (407)", tells("HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\n\r\n")},
		{"garbage", "is not one of HTTP/1", tells("\x16\x03\x03\x00\x7a\x02")},
		{"a long head", "the head of the proxy's answer is too long", tells("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")},
		{"bytes behind", "the proxy sent something behind its answer", tells("HTTP/1.1 200 OK\r\n\r\n\x15\x03\x03\x00\x02\x02\x28")},
		{"ends", "the proxy closed the connection instead of an answer", func(net.Conn, *http.Request) {}},
		{"hangs", "the proxy did not answer in time", func(c net.Conn, _ *http.Request) { _, _ = io.Copy(io.Discard, c) }},
		{"drips", "the proxy did not answer in time", func(c net.Conn, _ *http.Request) {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			for err == nil {
				time.Sleep(time.Second)
				_, err = io.WriteString(c, "x")
			}
		}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			c := &corporate{sub(c.world, t), ""}
			before := len(a.requests())
			a.plays(tc.says)
			host := []string{"ok2.test", "ok.test"}[i%2] // more of one name would be one line of the log
			if p := c.poke("http", "-timeout", "40s", "-ca", bundle, "https://"+host+"/"); p.OK {
				t.Errorf("it works: %s", p)
			}
			if len(a.requests()) == before {
				t.Error("the proxy was not asked")
			}
			c.audited(tc.what, func(e event) bool {
				return e.Kind == "connect" && e.Name == host && strings.Contains(e.Reason, tc.reason)
			})
			c.onlyByProxy()
		})
	}
	l.DNS.SetAddrs(squidName, "10.77.0.9") // where nobody is: the lab's internet takes what comes, and says nothing of HTTP
	if got := fmt.Sprint(l.Web.Requests("ok.test", "ok2.test")); got != "[]" {
		t.Errorf("ok.test was reached: %s", got)
	}
	c.says([]string{"explain", "ok.test"}, "onward by upstream_proxy, http://proxy.corp.test:3128, asked for addresses", "the proxy did not answer in time")
	c.says([]string{"status"}, "upstream proxy: http://proxy.corp.test:3128")
	if r := c.root("agent-init", "doctor"); !strings.Contains(r.Stdout, "the proxy did not answer in time") {
		t.Errorf("doctor does not say it: %s", r)
	}
}

// TestProxyReload: a proxy that is taken out of the policy, or put in, is the only way from then on. What goes the
// other way ends.
func TestProxyReload(t *testing.T) {
	l := newLab(t)
	a := act(t, l)
	a.plays(through(t, l))
	s := newStreams()
	l.Web.Handle("ok.test", s)
	c := behind(t, l, "", byProxy, "ok.test\n")
	const url = "https://ok.test"
	flows := c.follow(s, url)
	if got := a.requests(); len(got) == 0 {
		t.Fatal("it does not go by the proxy")
	}
	c.onlyByProxy()
	for _, step := range []struct{ policy, word string }{{"{}\n", "straight"}, {byProxy, "by the proxy"}} {
		since := time.Now()
		if r := c.reloadWith(step.policy); r.Code != 0 {
			t.Fatalf("%s: %s", step.word, r)
		}
		if step.word == "straight" { // the proxy that is not allowed any more gets not even a reset
			select {
			case <-flows[url].Done():
			case <-time.After(lab.Patience):
				t.Error("what goes by the proxy lives on")
			}
		} else {
			c.cut(s, url, flows[url], since)
		}
		s = newStreams()
		l.Web.Handle("ok.test", s)
		before := len(a.requests())
		c.box.ForgetPackets()
		flows = c.follow(s, url)
		if by := len(a.requests()) > before; by != (step.word == "by the proxy") {
			t.Errorf("%s: %d requests to the proxy before, %d after", step.word, before, len(a.requests()))
		}
	}
	c.onlyByProxy()
}

// TestProxyRefused: what can't hold ends the start.
func TestProxyRefused(t *testing.T) {
	for what, tc := range map[string]struct {
		policy, list string
		args         []string
		texts        []string
	}{
		"no credential": {"upstream_proxy: {to: 'http://proxy.corp.test:3128', credential: 'file:/run/secrets/none'}\n", "ok.test\n", nil,
			[]string{"upstream_proxy: there is no credential at file:/run/secrets/none"}},
		"an address":   {byProxy, "10.1.2.3:5432\n", nil, []string{"an entry by address can't go by upstream_proxy", "upstream_proxy.straight"}},
		"monitor mode": {byProxy, "ok.test\n", []string{"--mode", "monitor"}, []string{"in monitor mode", "goes straight"}},
	} {
		t.Run(what, func(t *testing.T) {
			args := append(append([]string{"agent-init", "run"}, tc.args...), "--", "sh", "-c", "echo started")
			w := start(t, tc.list, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(tc.policy)}}}, args...)
			refused(t, w.agent.Wait(0), 78, tc.texts...)
			w.sealed()
		})
	}
}
