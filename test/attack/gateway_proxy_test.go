package attack

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// proxied is an agent behind a gateway whose way out is a proxy.
type proxied struct {
	*kept
	corp *corporate // with the same world
}

// gatewayBehind starts a gateway whose way out is the proxy, and an agent behind it.
func gatewayBehind(t *testing.T, l *lab.Lab, dir, policy, list string, opts lab.BoxOptions, flags ...string) *proxied {
	t.Helper()
	l.DNS.SetAddrs(squidName, squidAddr)
	opts.Gateway = true
	opts.Files = append(opts.Files, lab.File{Path: bundle, Data: l.CA.PEM}, lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)})
	w := startIn(t, l, list, opts, append([]string{"agent-init", "gateway", "--inside", "eth1"}, flags...)...)
	w.ready()
	p := &proxied{&kept{world: w}, &corporate{w, dir}}
	p.agent = p.another()
	w.box.ForgetPackets()
	l.DNS.Forget()
	l.ForgetConns()
	return p
}

// shut tries what an agent has no way for: the proxy itself, names and addresses that are not allowed, and what is
// allowed by another protocol, or at a port that is not. By frames, past its own kernel.
func (p *proxied) shut(leased netip.Addr) {
	p.Helper()
	for _, to := range []string{squidAddr + ":3128", leased.String() + ":8443", "45.30.9.9:9"} {
		p.blocked("tcp", "-timeout", "1s", to)
	}
	p.blocked("resolve", squidName)
	p.blocked("http", "-insecure", "https://evil.test/")
	mine, gate := hardware(p.T, p.agent, "eth0"), hardware(p.T, p.box, "eth1")
	for _, dst := range []netip.Addr{leased, netip.MustParseAddr(squidAddr), netip.MustParseAddr("198.18.7.7")} {
		f := craft{from: mine, to: gate, src: p.agent.Addr4(), dst: dst}
		p.send(f.udp(4700, 443, "LEAK").hex(), f.tcp(4700, 443, 2, "").hex(), f.tcp(4701, 3128, 2, "").hex(), f.tcp(4702, 443, 0x10, "LEAK").hex())
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
			p := gatewayBehind(t, l, squid(t, l, ""), policy, "ok.test\nok2.test read\nok2.test:80 read\nnear.test\n45.30.9.9:8443\n",
				lab.BoxOptions{Forwards: tc.answer == "real"}, "--answer", tc.answer)
			p.works("http", "https://ok.test/")
			p.works("http", "-insecure", "https://ok2.test/") // request by request
			if refused := p.blocked("http", "-insecure", "-method", "POST", "https://ok2.test/"); refused.Detail["status"] != 403.0 {
				t.Errorf("not refused by the broker: %s", refused)
			}
			if tc.asked != "" { // a URL has a name
				p.works("http", "http://ok2.test/")
			} else if refused := p.asRoot("http", "http://ok2.test/"); refused.Detail["status"] == 200.0 {
				t.Errorf("squid takes CONNECT to port 80: %s", refused)
			}
			asked := p.corp.asked()
			if !slices.ContainsFunc(asked, func(s string) bool {
				to, err := netip.ParseAddrPort(strings.TrimSuffix(strings.TrimPrefix(s, "CONNECT "), " 200"))
				return s == tc.asked || tc.asked == "" && err == nil && to.Port() == 443 && slices.Contains(lab.Names()["ok.test"], to.Addr())
			}) {
				t.Errorf("the proxy was asked %q", asked)
			}
			ok4, _ := named("ok.test")
			p.shut(ok4)
			p.works("http", "https://ok.test/") // behind these
			p.corp.onlyByProxy()
			for _, q := range l.Queries("ok.test") { // squid asks from the internet itself
				if a := q.Client.Addr(); tc.asked != "" && (a == p.box.Addr4() || a == p.box.Addr6()) {
					t.Errorf("a DNS server was asked by the gateway: %v", q)
				}
			}
			before := len(p.corp.asked())
			p.works("http", "https://near.test/")
			if tc.answer == "real" {
				p.works("tcp", "-send", "hello", "45.30.9.9:8443")
			}
			if more := p.corp.asked()[before:]; len(more) > 0 {
				t.Errorf("what goes straight went by the proxy: %q", more)
			}
			if s, code := p.status(); code != 0 {
				t.Errorf("not healthy: %v", s["why"])
			}
			if out := p.did("explain", "ok.test"); !strings.Contains(out, "onward by upstream_proxy, http://proxy.corp.test:3128") {
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
			a := act(t, l)
			a.plays(tells("HTTP/1.1 503 Not now\r\n\r\n"))
			policy := "upstream_proxy: {to: 'http://proxy.corp.test:3128', credential: 'file:/run/secrets/proxy', auth: negotiate}\n"
			p := gatewayBehind(t, l, "", policy, "ok.test\nok2.test\n", lab.BoxOptions{
				Forwards: answer == "real", Files: []lab.File{{Path: "/run/secrets/proxy", Data: []byte(proxySecret + "\n"), Mode: 0o400}},
			}, "--answer", answer)
			for i, tc := range []struct {
				what, reason string
				says         func(net.Conn, *http.Request)
			}{
				{"refuses", "the proxy refused (403)", tells("HTTP/1.1 403 Forbidden\r\n\r\n")},
				{"wants another credential", "credential (407)", tells("HTTP/1.1 407 Who\r\nProxy-Authenticate: Negotiate\r\n\r\n")},
				{"bytes behind", "the proxy sent something behind its answer", tells("HTTP/1.1 200 OK\r\n\r\n\x15\x03\x03\x00\x02\x02\x28")},
				{"ends", "the proxy closed the connection instead of an answer", func(net.Conn, *http.Request) {}},
				{"hangs", "the proxy did not answer in time", func(c net.Conn, _ *http.Request) { _, _ = io.Copy(io.Discard, c) }},
			} {
				a.plays(tc.says)
				host := []string{"ok2.test", "ok.test"}[i%2]
				before := len(a.requests())
				p.blocked("http", "-timeout", "30s", "https://"+host+"/")
				if len(a.requests()) == before {
					t.Errorf("%s: the proxy was not asked", tc.what)
				}
				p.audited(tc.what, func(e event) bool {
					return e.Kind == "connect" && e.Name == host && strings.Contains(e.Reason, tc.reason)
				})
			}
			a.plays(through(t, l))
			p.works("http", "https://ok.test/")
			// A broker that hangs holds what would go by it.
			broker := (&brokered{world: p.world}).process().host
			must(t, unix.Kill(broker, unix.SIGSTOP))
			p.blocked("http", "-timeout", "2s", "https://ok2.test/")
			must(t, unix.Kill(broker, unix.SIGKILL))
			p.works("http", "https://ok2.test/") // by the next one
			p.corp.onlyByProxy()
			if got := a.authorizations(); len(got) != 1 || got[0] != "Negotiate "+proxySecret {
				t.Errorf("the proxy was shown %q", got)
			}
		})
	}
}

// through is a proxy that does what it is asked for.
func through(t *testing.T, l *lab.Lab) func(net.Conn, *http.Request) {
	return func(c net.Conn, r *http.Request) {
		to, err := l.Internet.Dial(t.Context(), "tcp", r.Host, netip.AddrPort{})
		if err != nil {
			return
		}
		defer to.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, c); to.Close() }()
		_, _ = io.Copy(c, to)
	}
}

// TestGatewayUpstreamReload: a proxy that is put in or taken out is the only way from then on, also for what the kernel
// has forwarded.
func TestGatewayUpstreamReload(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	a := act(t, l)
	a.plays(through(t, l))
	s := newStreams()
	l.Web.Handle("ok.test", s)
	const list, later = "ok.test\nok2.test read\nok.test:8444\n", "ok.test\nok2.test read\nok.test:8444 tls\n"
	p := gatewayBehind(t, l, "", "{}\n", list, lab.BoxOptions{Forwards: true}) // with a broker, so a proxy may come
	ok4, _ := named("ok.test")
	forwarded := netip.AddrPortFrom(ok4, 8444)
	begin := func() (stream, flow *lab.Process) {
		lines := s.get(s.lines, "https://ok.test")
		stream = p.agent.ExecStart(lab.Cmd{Args: []string{"poke", "stream", "https://ok.test/stream"}})
		if !eventually(lab.Patience, func() bool { return s.get(s.lines, "https://ok.test") > lines+5 }) {
			t.Fatalf("it does not stream: %s", stream.Stdout())
		}
		return stream, p.agent.ExecStart(lab.Cmd{Args: []string{"poke", "tcp", "-hold", "10m", "-oneway", forwarded.String()}})
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
	if !eventually(lab.Patience, func() bool { return p.received(forwarded) > 0 }) {
		t.Fatalf("nothing is forwarded: %s", flow.Stdout())
	}
	if got := a.requests(); len(got) > 0 {
		t.Errorf("a proxy was asked that is not in the policy: %q", got)
	}
	list2 := func(list, policy string) lab.Result {
		must(t, p.box.WriteFile("/etc/agent-init/allowlist.txt", []byte(list), 0o644))
		return p.reloadWith(policy)
	}
	if r := list2(list, byProxy); r.Code != 78 || !strings.Contains(r.Stderr, "by upstream_proxy goes only what is looked into") {
		t.Errorf("what the kernel forwards can't go by a proxy: %s", r)
	}
	if r := list2(later, byProxy); r.Code != 0 {
		t.Fatal(r)
	}
	p.box.ForgetPackets()
	ends("a proxy has come", stream, flow)
	p.blocked("tcp", "-timeout", "1s", "-send", "no TLS", forwarded.String())
	stream, _ = begin()
	if len(a.requests()) == 0 {
		t.Error("the proxy was not asked")
	}
	p.corp.sealed(func(k *lab.Packet) bool { // but for the resets by which the gate ends its own
		return k.DstPort != 53 && (k.Dst.String() != squidAddr || k.DstPort != squidPort) && len(k.Payload) > 0
	})
	asked := len(a.requests())
	if r := list2(list, "{}\n"); r.Code != 0 {
		t.Fatal(r)
	}
	ends("the proxy has gone", stream)
	begin()
	if more := a.requests()[asked:]; len(more) > 0 {
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
		p := gatewayBehind(t, l, squid(t, l, ""), "{}\n", "ok.test\nok2.test\n", lab.BoxOptions{
			Forwards: true, Files: []lab.File{{Path: "/etc/agent-init/ceiling.d/org.yaml", Data: []byte(ceiling)}},
		})
		p.works("http", "https://ok.test/")
		p.blocked("http", "https://ok2.test/")
		p.corp.onlyByProxy()
		if len(p.corp.asked()) == 0 {
			t.Error("the proxy was not asked")
		}
	})
	t.Run("later", func(t *testing.T) {
		lab.Require(t)
		l := lab.New(t, lab.Options{})
		a := act(t, l)
		a.plays(through(t, l))
		p := gatewayBehind(t, l, "", "{}\n", "ok.test\nok.test:8444\n", lab.BoxOptions{Forwards: true})
		p.works("http", "https://ok.test/")
		ok4, _ := named("ok.test")
		to := netip.AddrPortFrom(ok4, 8444)
		flow := p.agent.ExecStart(lab.Cmd{Args: []string{"poke", "tcp", "-hold", "10m", "-oneway", to.String()}})
		if !eventually(lab.Patience, func() bool { return p.received(to) > 0 }) {
			t.Fatalf("nothing is forwarded: %s", flow.Stdout())
		}
		if r := p.root("mkdir", "-p", "/etc/agent-init/ceiling.d"); r.Code != 0 {
			t.Fatal(r)
		}
		must(t, p.box.WriteFile("/etc/agent-init/ceiling.d/org.yaml", []byte(ceiling), 0o644))
		p.refuses(78, []string{"reload"}, "upstream_proxy")
		p.box.ForgetPackets()
		if r, err := lab.ParsePoke(flow.Wait(lab.Patience).Stdout); err != nil || r.OK {
			t.Errorf("what is forwarded lives on: %v %s", err, r)
		}
		p.blocked("http", "-timeout", "2s", "https://ok.test/")
		p.blocked("tcp", "-timeout", "1s", to.String())
		p.corp.onlyByProxy()
		if _, code := p.status(); code == 0 {
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
		"monitor mode":   {byProxy, "ok.test\n", []string{"--mode", "monitor"}, "in monitor mode"},
		"by address":     {byProxy, "45.30.9.9:8443\n", nil, "an entry by address can't go by upstream_proxy"},
		"a plain port":   {byProxy, "ok.test:22\n", []string{"--answer", "own"}, "by upstream_proxy goes only what is looked into"},
	} {
		t.Run(what, func(t *testing.T) {
			l := lab.New(t, lab.Options{})
			b := l.NewBox(lab.BoxOptions{Gateway: true, Forwards: true, Binary: lab.Binary(t), Files: []lab.File{
				{Path: "/etc/agent-init/policy.yaml", Data: []byte(tc.policy)}, {Path: "/etc/agent-init/allowlist.txt", Data: []byte(tc.list)},
			}})
			refused(t, b.Start(lab.Cmd{Args: append([]string{"agent-init", "gateway", "--inside", "eth1"}, tc.flags...)}).Wait(lab.Patience), 78, tc.says)
		})
	}
}

// basicUsers are rules by which squid lets in who shows one of these, USER:PASSWORD.
func basicUsers(t *testing.T, users ...string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "users"), []byte(strings.Join(users, "\n")+"\n"), 0o644))
	helper := filepath.Join(dir, "helper")
	must(t, os.WriteFile(helper, []byte("#!/bin/sh\nwhile read user pass; do grep -q \"^$user:$pass\\$\" "+dir+"/users && echo OK || echo ERR; done\n"), 0o755))
	must(t, os.Chmod(dir, 0o755))
	return "auth_param basic program " + helper + "\nauth_param basic children 1\nacl known proxy_auth REQUIRED\nhttp_access deny !known\n"
}

// askedBy is asked, with who has asked behind each, and without what was refused.
func (c *corporate) askedBy() (all []string) {
	data, _ := os.ReadFile(filepath.Join(c.dir, "access.log"))
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 7 && f[7] != "-" {
			_, status, _ := strings.Cut(f[3], "/")
			all = append(all, f[5]+" "+f[6]+" "+status+" "+f[7])
		}
	}
	return all
}
