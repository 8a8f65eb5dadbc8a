package gateway

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// proxied is an agent behind a gateway whose way out is a proxy.
type proxied struct {
	*rig.Kept
	corp *rig.Corporate // with the same world
}

// gatewayBehind starts a gateway whose way out is the proxy, and an agent behind it.
func gatewayBehind(t *testing.T, l *lab.Lab, dir, policy, list string, opts lab.BoxOptions, flags ...string) *proxied {
	t.Helper()
	l.DNS.SetAddrs(rig.SquidName, rig.SquidAddr)
	opts.Gateway = true
	opts.Files = append(opts.Files, lab.File{Path: rig.Bundle, Data: l.CA.PEM}, lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)})
	w := rig.StartIn(t, l, list, opts, append([]string{"agent-init", "gateway", "--inside", "eth1"}, flags...)...)
	w.Ready()
	p := &proxied{&rig.Kept{World: w}, &rig.Corporate{World: w, Dir: dir}}
	p.Agent = p.Another()
	w.Box.ForgetPackets()
	l.DNS.Forget()
	l.ForgetConns()
	return p
}

// shut tries what an agent has no way for: the proxy itself, names and addresses that are not allowed, and what is
// allowed by another protocol, or at a port that is not. By frames, past its own kernel.
func (p *proxied) shut(leased netip.Addr) {
	p.Helper()
	for _, to := range []string{rig.SquidAddr + ":3128", leased.String() + ":8443", "45.30.9.9:9"} {
		p.Blocked("tcp", "-timeout", "1s", to)
	}
	p.Blocked("resolve", rig.SquidName)
	p.Blocked("http", "-insecure", "https://evil.test/")
	mine, gate := hardware(p.T, p.Agent, "eth0"), hardware(p.T, p.Box, "eth1")
	for _, dst := range []netip.Addr{leased, netip.MustParseAddr(rig.SquidAddr), netip.MustParseAddr("198.18.7.7")} {
		f := craft{from: mine, to: gate, src: p.Agent.Addr4(), dst: dst}
		send(p.Kept, f.udp(4700, 443, "LEAK").hex(), f.tcp(4700, 443, 2, "").hex(), f.tcp(4701, 3128, 2, "").hex(), f.tcp(4702, 443, 0x10, "LEAK").hex())
	}
}

// TestGatewayUpstream: agents behind a gateway go out by the proxy alone, in both ways in which the gateway answers.
// Neither what the gate passes on nor what the kernel forwards gets past it, but for what is to go straight.
func TestGatewayUpstream(t *testing.T) {
	for _, tc := range []struct{ answer, words, asked string }{
		{"real", "", ""}, {"own", "", ""}, {"real", "  resolve: proxy\n", "CONNECT ok.test:443 200"}, {"own", "  resolve: proxy\n", "CONNECT ok.test:443 200"},
	} {
		t.Run(tc.answer+strings.TrimSpace(strings.ReplaceAll(tc.words, ":", "")), func(t *testing.T) {
			lab.Require(t)
			l := lab.New(t, lab.Options{})
			l.DNS.SetAddrs("near.test", "45.30.60.9")
			policy := "upstream_proxy:\n  to: http://proxy.corp.test:3128\n  straight: [near.test, 45.30.9.9]\n" + tc.words
			p := gatewayBehind(t, l, rig.Squid(t, l, ""), policy, "ok.test\nok2.test read\nok2.test:80 read\nnear.test\n45.30.9.9:8443\n",
				lab.BoxOptions{Forwards: tc.answer == "real"}, "--answer", tc.answer)
			p.Works("http", "https://ok.test/")
			p.Works("http", "-insecure", "https://ok2.test/") // request by request
			if refused := p.Blocked("http", "-insecure", "-method", "POST", "https://ok2.test/"); refused.Detail["status"] != 403.0 {
				t.Errorf("not refused by the broker: %s", refused)
			}
			if tc.asked != "" { // a URL has a name
				p.Works("http", "http://ok2.test/")
			} else if refused := p.AsRoot("http", "http://ok2.test/"); refused.Detail["status"] == 200.0 {
				t.Errorf("squid takes CONNECT to port 80: %s", refused)
			}
			asked := p.corp.Asked()
			if !slices.ContainsFunc(asked, func(s string) bool {
				to, err := netip.ParseAddrPort(strings.TrimSuffix(strings.TrimPrefix(s, "CONNECT "), " 200"))
				return s == tc.asked || tc.asked == "" && err == nil && to.Port() == 443 && slices.Contains(lab.Names()["ok.test"], to.Addr())
			}) {
				t.Errorf("the proxy was asked %q", asked)
			}
			ok4, _ := rig.Named("ok.test")
			p.shut(ok4)
			p.Works("http", "https://ok.test/") // behind these
			p.corp.OnlyByProxy()
			for _, q := range l.Queries("ok.test") { // squid asks from the internet itself
				if a := q.Client.Addr(); tc.asked != "" && (a == p.Box.Addr4() || a == p.Box.Addr6()) {
					t.Errorf("a DNS server was asked by the gateway: %v", q)
				}
			}
			before := len(p.corp.Asked())
			p.Works("http", "https://near.test/")
			if tc.answer == "real" {
				p.Works("tcp", "-send", "hello", "45.30.9.9:8443")
			}
			if more := p.corp.Asked()[before:]; len(more) > 0 {
				t.Errorf("what goes straight went by the proxy: %q", more)
			}
			if s, code := p.Status(); code != 0 {
				t.Errorf("not healthy: %v", s["why"])
			}
			if out := p.Did("explain", "ok.test"); !strings.Contains(out, "onward by upstream_proxy, http://proxy.corp.test:3128") {
				t.Errorf("explain: %s", out)
			}
		})
	}
}

// TestGatewayUpstreamHostile: whatever the proxy does, or if it is gone, what agents begin ends with the reason in the
// log, and never goes straight. So it is while the broker hangs, and when it is killed.
func TestGatewayUpstreamHostile(t *testing.T) {
	for _, answer := range []string{"real", "own"} {
		t.Run(answer, func(t *testing.T) {
			lab.Require(t)
			l := lab.New(t, lab.Options{})
			a := rig.Act(t, l)
			a.Plays(rig.Tells("HTTP/1.1 503 Not now\r\n\r\n"))
			policy := "upstream_proxy: {to: 'http://proxy.corp.test:3128', credential: 'file:/run/secrets/proxy', auth: negotiate}\n"
			p := gatewayBehind(t, l, "", policy, "ok.test\nok2.test\n", lab.BoxOptions{
				Forwards: answer == "real", Files: []lab.File{{Path: "/run/secrets/proxy", Data: []byte(rig.ProxySecret + "\n"), Mode: 0o400}},
			}, "--answer", answer)
			for i, tc := range []struct {
				what, reason string
				says         func(net.Conn, *http.Request)
			}{
				{"refuses", "the proxy refused (403)", rig.Tells("HTTP/1.1 403 Forbidden\r\n\r\n")},
				{"wants another credential", "credential (407)", rig.Tells("HTTP/1.1 407 Who\r\nProxy-Authenticate: Negotiate\r\n\r\n")},
				{"bytes behind", "the proxy sent something behind its answer", rig.Tells("HTTP/1.1 200 OK\r\n\r\n\x15\x03\x03\x00\x02\x02\x28")},
				{"ends", "the proxy closed the connection instead of an answer", func(net.Conn, *http.Request) {}},
				{"hangs", "the proxy did not answer in time", func(c net.Conn, _ *http.Request) { _, _ = io.Copy(io.Discard, c) }},
			} {
				a.Plays(tc.says)
				host := []string{"ok2.test", "ok.test"}[i%2]
				before := len(a.Requests())
				p.Blocked("http", "-timeout", "30s", "https://"+host+"/")
				if len(a.Requests()) == before {
					t.Errorf("%s: the proxy was not asked", tc.what)
				}
				p.Audited(tc.what, func(e rig.Event) bool {
					return e.Kind == "connect" && e.Name == host && strings.Contains(e.Reason, tc.reason)
				})
			}
			a.Plays(rig.Through(t, l))
			p.Works("http", "https://ok.test/")
			// A broker that hangs holds what would go by it.
			broker := (&rig.Brokered{World: p.World}).Process().Host
			rig.Must(t, unix.Kill(broker, unix.SIGSTOP))
			p.Blocked("http", "-timeout", "2s", "https://ok2.test/")
			rig.Must(t, unix.Kill(broker, unix.SIGKILL))
			p.Works("http", "https://ok2.test/") // by the next one
			p.corp.OnlyByProxy()
			if got := authorizations(a); len(got) != 1 || got[0] != "Negotiate "+rig.ProxySecret {
				t.Errorf("the proxy was shown %q", got)
			}
		})
	}
}

// TestGatewayUpstreamReload: a proxy that is put in or taken out is the only way from then on, also for what the kernel
// has forwarded.
func TestGatewayUpstreamReload(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	a := rig.Act(t, l)
	a.Plays(rig.Through(t, l))
	s := rig.NewStreams()
	l.Web.Handle("ok.test", s)
	const list, later = "ok.test\nok2.test read\nok.test:8444\n", "ok.test\nok2.test read\nok.test:8444 tls\n"
	p := gatewayBehind(t, l, "", "{}\n", list, lab.BoxOptions{Forwards: true}) // with a broker, so a proxy may come
	ok4, _ := rig.Named("ok.test")
	forwarded := netip.AddrPortFrom(ok4, 8444)
	begin := func() (stream, flow *lab.Process) {
		lines := s.Get(s.Lines, "https://ok.test")
		stream = p.Agent.ExecStart(lab.Cmd{Args: []string{"poke", "stream", "https://ok.test/stream"}})
		if !rig.Eventually(lab.Patience, func() bool { return s.Get(s.Lines, "https://ok.test") > lines+5 }) {
			t.Fatalf("it does not stream: %s", stream.Stdout())
		}
		return stream, p.Agent.ExecStart(lab.Cmd{Args: []string{"poke", "tcp", "-hold", "10m", "-oneway", forwarded.String()}})
	}
	ends := func(what string, all ...*lab.Process) {
		t.Helper()
		for _, one := range all {
			if r, err := lab.ParsePoke(one.Wait(lab.Patience).Stdout); err != nil || r.OK {
				t.Errorf("%s: it lives on: %v %s", what, err, r)
			}
		}
	}
	stream, flow := begin()
	if !rig.Eventually(lab.Patience, func() bool { return p.Received(forwarded) > 0 }) {
		t.Fatalf("nothing is forwarded: %s", flow.Stdout())
	}
	if got := a.Requests(); len(got) > 0 {
		t.Errorf("a proxy was asked that is not in the policy: %q", got)
	}
	list2 := func(list, policy string) lab.Result {
		rig.Must(t, p.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte(list), 0o644))
		return p.ReloadWith(policy)
	}
	if r := list2(list, rig.ByProxy); r.Code != 78 || !strings.Contains(r.Stderr, "by upstream_proxy goes only what is looked into") {
		t.Errorf("what the kernel forwards can't go by a proxy: %s", r)
	}
	if r := list2(later, rig.ByProxy); r.Code != 0 {
		t.Fatal(r)
	}
	p.Box.ForgetPackets()
	ends("a proxy has come", stream, flow)
	p.Blocked("tcp", "-timeout", "1s", "-send", "no TLS", forwarded.String())
	stream, _ = begin()
	if len(a.Requests()) == 0 {
		t.Error("the proxy was not asked")
	}
	p.corp.Sealed(func(k *lab.Packet) bool { // but for the resets by which the gate ends its own
		return k.DstPort != 53 && (k.Dst.String() != rig.SquidAddr || k.DstPort != rig.SquidPort) && len(k.Payload) > 0
	})
	asked := len(a.Requests())
	if r := list2(list, "{}\n"); r.Code != 0 {
		t.Fatal(r)
	}
	ends("the proxy has gone", stream)
	begin()
	if more := a.Requests()[asked:]; len(more) > 0 {
		t.Errorf("a proxy was asked that is no more in the policy: %q", more)
	}
}

// TestGatewayUpstreamCeiling: a ceiling's proxy is that of agents who have none in their policy. One that takes another
// start closes everything, the forward path as well.
func TestGatewayUpstreamCeiling(t *testing.T) {
	const ceiling = "domains: [ok.test, 'ok.test:8444']\nupstream_proxy: http://proxy.corp.test:3128\n"
	t.Run("from the start", func(t *testing.T) {
		lab.Require(t)
		l := lab.New(t, lab.Options{})
		p := gatewayBehind(t, l, rig.Squid(t, l, ""), "{}\n", "ok.test\nok2.test\n", lab.BoxOptions{
			Forwards: true, Files: []lab.File{{Path: "/etc/agent-init/ceiling.d/org.yaml", Data: []byte(ceiling)}},
		})
		p.Works("http", "https://ok.test/")
		p.Blocked("http", "https://ok2.test/")
		p.corp.OnlyByProxy()
		if len(p.corp.Asked()) == 0 {
			t.Error("the proxy was not asked")
		}
	})
	t.Run("later", func(t *testing.T) {
		lab.Require(t)
		l := lab.New(t, lab.Options{})
		a := rig.Act(t, l)
		a.Plays(rig.Through(t, l))
		p := gatewayBehind(t, l, "", "{}\n", "ok.test\nok.test:8444\n", lab.BoxOptions{Forwards: true})
		p.Works("http", "https://ok.test/")
		ok4, _ := rig.Named("ok.test")
		to := netip.AddrPortFrom(ok4, 8444)
		flow := p.Agent.ExecStart(lab.Cmd{Args: []string{"poke", "tcp", "-hold", "10m", "-oneway", to.String()}})
		if !rig.Eventually(lab.Patience, func() bool { return p.Received(to) > 0 }) {
			t.Fatalf("nothing is forwarded: %s", flow.Stdout())
		}
		if r := p.Root("mkdir", "-p", "/etc/agent-init/ceiling.d"); r.Code != 0 {
			t.Fatal(r)
		}
		rig.Must(t, p.Box.WriteFile("/etc/agent-init/ceiling.d/org.yaml", []byte(ceiling), 0o644))
		p.Refuses(78, []string{"reload"}, "upstream_proxy")
		p.Box.ForgetPackets()
		if r, err := lab.ParsePoke(flow.Wait(lab.Patience).Stdout); err != nil || r.OK {
			t.Errorf("what is forwarded lives on: %v %s", err, r)
		}
		p.Blocked("http", "-timeout", "2s", "https://ok.test/")
		p.Blocked("tcp", "-timeout", "1s", to.String())
		p.corp.OnlyByProxy()
		if _, code := p.Status(); code == 0 {
			t.Error("all is well, and the ceiling can't be had")
		}
	})
}

// TestGatewayUpstreamRefused: what can't hold ends the start of a gateway as well.
func TestGatewayUpstreamRefused(t *testing.T) {
	lab.Require(t)
	for what, tc := range map[string]struct {
		policy, list string
		flags        []string
		says         string
	}{
		"no credential":  {"upstream_proxy: {to: 'http://proxy.corp.test:3128', credential: 'file:/run/secrets/none'}\n", "ok.test\n", nil, "upstream_proxy: there is no credential"},
		"with agents":    {"upstream_proxy: http://172.31.0.9:3128\n", "ok.test\n", nil, "the proxy is in the agents' network"},
		"with agents, 6": {"upstream_proxy: 'http://[fd00:31:0::9]:3128'\n", "ok.test\n", []string{"--answer", "own"}, "the proxy is in the agents' network"},
		"monitor mode":   {rig.ByProxy, "ok.test\n", []string{"--mode", "monitor"}, "in monitor mode"},
		"by address":     {rig.ByProxy, "45.30.9.9:8443\n", nil, "an entry by address can't go by upstream_proxy"},
		"a plain port":   {rig.ByProxy, "ok.test:22\n", []string{"--answer", "own"}, "by upstream_proxy goes only what is looked into"},
	} {
		t.Run(what, func(t *testing.T) {
			l := lab.New(t, lab.Options{})
			b := l.NewBox(lab.BoxOptions{Gateway: true, Forwards: true, Binary: lab.Binary(t), Files: []lab.File{
				{Path: "/etc/agent-init/policy.yaml", Data: []byte(tc.policy)}, {Path: "/etc/agent-init/allowlist.txt", Data: []byte(tc.list)},
			}})
			rig.Refused(t, b.Start(lab.Cmd{Args: append([]string{"agent-init", "gateway", "--inside", "eth1"}, tc.flags...)}).Wait(lab.Patience), 78, tc.says)
		})
	}
}
