package broker

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestProxyHostile: whatever the proxy says, or doesn't, a connection ends with the reason in the log, and never goes
// straight. A proxy that is gone is one of these.
func TestProxyHostile(t *testing.T) {
	l := rig.NewLab(t)
	a := rig.Act(t, l)
	a.Plays(rig.Tells("HTTP/1.1 503 Not now\r\n\r\n"))
	c := behind(t, l, "", rig.ByProxy, "ok.test\nok2.test\n")
	for i, tc := range []struct {
		what, reason string
		says         func(net.Conn, *http.Request)
	}{
		{"refuses", "the proxy refused (403)", rig.Tells("HTTP/1.1 403 Forbidden\r\n\r\n<html>")},
		{"wants a credential", "credential (407)", rig.Tells("HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\n\r\n")},
		{"garbage", "is not one of HTTP/1", rig.Tells("\x16\x03\x03\x00\x7a\x02")},
		{"a long head", "the head of the proxy's answer is too long", rig.Tells("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")},
		{"bytes behind", "the proxy sent something behind its answer", rig.Tells("HTTP/1.1 200 OK\r\n\r\n\x15\x03\x03\x00\x02\x02\x28")},
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
			c := &rig.Corporate{World: rig.Sub(c.World, t), Dir: ""}
			before := len(a.Requests())
			a.Plays(tc.says)
			host := []string{"ok2.test", "ok.test"}[i%2] // more of one name would be one line of the log
			if p := c.Poke("http", "-timeout", "40s", "-ca", rig.Bundle, "https://"+host+"/"); p.OK {
				t.Errorf("it works: %s", p)
			}
			if len(a.Requests()) == before {
				t.Error("the proxy was not asked")
			}
			c.Audited(tc.what, func(e rig.Event) bool {
				return e.Kind == "connect" && e.Name == host && strings.Contains(e.Reason, tc.reason)
			})
			c.OnlyByProxy()
		})
	}
	l.DNS.SetAddrs(rig.SquidName, "10.77.0.9") // where nobody is: the lab's internet takes what comes, and says nothing of HTTP
	if got := fmt.Sprint(l.Web.Requests("ok.test", "ok2.test")); got != "[]" {
		t.Errorf("ok.test was reached: %s", got)
	}
	c.Says([]string{"explain", "ok.test"}, "onward by upstream_proxy, http://proxy.corp.test:3128, asked for addresses", "the proxy did not answer in time")
	c.Says([]string{"status"}, "upstream proxy: http://proxy.corp.test:3128")
	if r := c.Root("agent-init", "doctor"); !strings.Contains(r.Stdout, "the proxy did not answer in time") {
		t.Errorf("doctor does not say it: %s", r)
	}
}

// TestProxyReload: a proxy that is taken out of the policy, or put in, is the only way from then on. What goes the
// other way ends.
func TestProxyReload(t *testing.T) {
	l := rig.NewLab(t)
	a := rig.Act(t, l)
	a.Plays(rig.Through(t, l))
	s := rig.NewStreams()
	l.Web.Handle("ok.test", s)
	c := behind(t, l, "", rig.ByProxy, "ok.test\n")
	const url = "https://ok.test"
	flows := c.Follow(s, url)
	if got := a.Requests(); len(got) == 0 {
		t.Fatal("it does not go by the proxy")
	}
	c.OnlyByProxy()
	for _, step := range []struct{ policy, word string }{{"{}\n", "straight"}, {rig.ByProxy, "by the proxy"}} {
		since := time.Now()
		if r := c.ReloadWith(step.policy); r.Code != 0 {
			t.Fatalf("%s: %s", step.word, r)
		}
		if step.word == "straight" { // the proxy that is not allowed any more gets not even a reset
			select {
			case <-flows[url].Done():
			case <-time.After(lab.Patience):
				t.Error("what goes by the proxy lives on")
			}
		} else {
			c.Cut(s, url, flows[url], since)
		}
		s = rig.NewStreams()
		l.Web.Handle("ok.test", s)
		before := len(a.Requests())
		c.Box.ForgetPackets()
		flows = c.Follow(s, url)
		if by := len(a.Requests()) > before; by != (step.word == "by the proxy") {
			t.Errorf("%s: %d requests to the proxy before, %d after", step.word, before, len(a.Requests()))
		}
	}
	c.OnlyByProxy()
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
		"an address":   {rig.ByProxy, "10.1.2.3:5432\n", nil, []string{"an entry by address can't go by upstream_proxy", "upstream_proxy.straight"}},
		"monitor mode": {rig.ByProxy, "ok.test\n", []string{"--mode", "monitor"}, []string{"in monitor mode", "goes straight"}},
	} {
		t.Run(what, func(t *testing.T) {
			args := append(append([]string{"agent-init", "run"}, tc.args...), "--", "sh", "-c", "echo started")
			w := rig.Start(t, tc.list, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(tc.policy)}}}, args...)
			rig.Refused(t, w.Agent.Wait(0), 78, tc.texts...)
			w.Sealed()
		})
	}
}
