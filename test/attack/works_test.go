package attack

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

var _ = also(TestWorksNames, everywhere)

// TestWorksNames: both families, both schemes, exact names and wildcards.
func TestWorksNames(t *testing.T) {
	l := newLab(t)
	l.DNS.SetAddrs("cdn.test", "45.30.0.20", "2a0f:30::20")
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.21", "2a0f:30::21")
	l.DNS.SetAddrs("notcdn.test", "45.30.0.22")
	l.DNS.Set("www.ok.test", lab.Answer{CNAME: "www.edge.test"})
	l.DNS.Set("www.edge.test", lab.Answer{CNAME: "pop7.edge.test"})
	l.DNS.SetAddrs("pop7.edge.test", "45.30.0.23", "2a0f:30::23")
	w := confineIn(t, l, "ok.test\nwww.ok.test\n*.cdn.test\nxn--mnchen-3ya.test\nMIXED.ok.test.\n", lab.BoxOptions{})
	l.DNS.SetAddrs("xn--mnchen-3ya.test", "45.30.0.24")
	l.DNS.SetAddrs("mixed.ok.test", "45.30.0.25")
	for _, scheme := range []string{"http", "https"} {
		for _, host := range []string{"ok.test", "www.ok.test", "cdn.test", "a.cdn.test", "b.a.cdn.test"} {
			w.works("http", scheme+"://"+host+"/")
		}
	}
	for _, host := range []string{"ok.test", "cdn.test", "a.cdn.test", "www.ok.test"} {
		p := w.works("resolve", host)
		if len(values(p, "addrs")) != 2 {
			t.Errorf("%s: want an address of each family: %s", host, p)
		}
		for _, s := range values(p, "addrs") {
			a := netip.MustParseAddr(s)
			w.works("http", "-addr", at(a, 443), "https://"+host+"/")
			w.works("http", "-addr", at(a, 80), "http://"+host+"/")
		}
	}
	if n := len(l.Web.Requests("ok.test")); n != 6 {
		t.Errorf("%d requests for ok.test arrived, want 6", n)
	}
	for _, host := range []string{"münchen.test", "xn--mnchen-3ya.test", "mixed.ok.test", "MiXed.oK.TEST."} {
		if !eventually(5*time.Second, func() bool { return w.poke("http", "http://"+host+"/").OK }) {
			t.Errorf("%s does not work", host)
		}
	}
	w.blocked("http", "http://notcdn.test/")
	w.blocked("http", "http://sub.ok.test/")
}

var _ = also(TestWorksRotation, everywhere)

func TestWorksRotation(t *testing.T) {
	l := newLab(t)
	first, second := netip.MustParseAddr("45.30.20.1"), netip.MustParseAddr("45.30.20.2")
	l.DNS.Set("moving.test", lab.Answer{Addrs: []netip.Addr{first}, TTL: 1})
	w := confineIn(t, l, "moving.test\n", lab.BoxOptions{})
	resolves := func(a netip.Addr) func() bool {
		return func() bool {
			return slices.Equal(values(w.poke("dns", at(lab.Upstream4, 53), "moving.test", "A"), "addrs"), []string{a.String()})
		}
	}
	if !eventually(5*time.Second, resolves(first)) {
		t.Fatal("not resolved")
	}
	l.DNS.Set("moving.test", lab.Answer{Addrs: []netip.Addr{second}, TTL: 1})
	if !eventually(10*time.Second, resolves(second)) {
		t.Fatal("the new address never came")
	}
	w.works("http", "-addr", at(second, 443), "https://moving.test/")
	w.works("http", "-addr", at(first, 443), "https://moving.test/") // for a client that resolved just before

	// Many addresses, a few at a time, as large services do it.
	l.DNS.Set("moving.test", lab.Answer{Addrs: many("45.30.21.1", 100), Rotate: 8, ZeroTTL: true})
	w.works("loop", "-n", "300", "-c", "4", "-name", "moving.test", ":443")
}

var _ = also(TestWorksLongLived, everywhere)

// TestWorksLongLived: a connection outlives the lease that it began under.
func TestWorksLongLived(t *testing.T) {
	l := newLab(t)
	first, second := netip.MustParseAddr("45.30.22.1"), netip.MustParseAddr("45.30.22.2")
	l.DNS.Set("stream.test", lab.Answer{Addrs: []netip.Addr{first}, TTL: 1})
	w := confineIn(t, l, "stream.test:8443\n", lab.BoxOptions{Files: []lab.File{{
		Path: "/etc/agent-init/policy.yaml", Data: []byte("limits:\n  addrs_per_name: 1\n")}}})
	w.works("resolve", "stream.test")
	held := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "tcp", "-hold", "5s", at(first, 8443)}})
	arrived := func() bool {
		return slices.ContainsFunc(l.Conns(), func(c lab.Conn) bool { return c.Dst == netip.AddrPortFrom(first, 8443) && c.Total > 0 })
	}
	if !eventually(10*time.Second, arrived) {
		t.Fatalf("not connected: %s", held.Stderr())
	}
	// One address per name: the next one takes the first one's place.
	l.DNS.Set("stream.test", lab.Answer{Addrs: []netip.Addr{second}, TTL: 1})
	if !eventually(5*time.Second, func() bool { w.poke("resolve", "stream.test"); return w.leases()[first] == 0 }) {
		t.Fatalf("still leased for %v", w.leases()[first])
	}
	w.blocked("tcp", at(first, 8443))
	r := held.Wait(0)
	if p, err := lab.ParsePoke(r.Stdout); err != nil || !p.OK {
		t.Errorf("the connection did not live on: %v %s", err, r)
	}
}

var _ = also(TestWorksEntries, everywhere)

// TestWorksEntries: each kind of entry opens what it says, and no more.
func TestWorksEntries(t *testing.T) {
	l := newLab(t)
	l.DNS.SetAddrs("ntp.ok.test", "45.30.30.1", "2a0f:30:30::1")
	l.DNS.SetAddrs("git.ok.test", "45.30.30.2")
	l.DNS.SetAddrs("registry.corp.test", "10.20.30.40")
	l.DNS.SetAddrs("*.lan.test", "192.168.7.7", "fd00:7::7")
	l.DNS.SetAddrs("named.corp.test", "10.44.1.2")
	l.DNS.SetAddrs("localai", "172.30.200.9")
	w := confineIn(t, l, `
ntp.ok.test:123/udp
git.ok.test:22
registry.corp.test:443 private
*.lan.test private
named.corp.test:5432
10.44.0.0/16:5432
localai:8080
45.40.0.0/16:5432
45.41.1.1
[2a0f:40::1]:8443
[2a0f:41::]/32:8443
45.42.1.1:7000/udp
host.docker.internal:11434
`+sidecarEntry("172.30.0.1:11434\n"), lab.BoxOptions{Hosts: []string{"172.30.0.1 host.docker.internal"}})
	gateway := w.box.Gateway4().String()
	if gateway != "172.30.0.1" {
		t.Fatalf("the gateway is %s", gateway)
	}
	for _, c := range []struct {
		entry         string
		works, blocks []string // operation, address
	}{
		{"name, UDP", []string{"udp ntp.ok.test:123", "udp 45.30.30.1:123", "udp [2a0f:30:30::1]:123"}, []string{"tcp ntp.ok.test:123", "udp ntp.ok.test:124", "tcp ntp.ok.test:443"}},
		{"name, port", []string{"tcp git.ok.test:22"}, []string{"tcp git.ok.test:443", "udp git.ok.test:22"}},
		{"private name", []string{"tcp registry.corp.test:443"}, []string{"tcp registry.corp.test:80", "tcp 10.20.30.41:443"}},
		{"private wildcard", []string{"tcp nas.lan.test:443", "tcp 192.168.7.7:80", "tcp [fd00:7::7]:443"}, []string{"tcp 192.168.7.8:443"}},
		{"name in a listed block", []string{"tcp named.corp.test:5432"}, []string{"tcp named.corp.test:5433"}},
		{"single label", []string{"tcp localai:8080"}, []string{"tcp localai:8081", "tcp 172.30.200.10:8080"}},
		{"block, port", []string{"tcp 45.40.0.1:5432", "tcp 45.40.255.254:5432"}, []string{"tcp 45.40.0.1:5433", "tcp 45.41.0.0:5432", "udp 45.40.0.1:5432"}},
		{"address", []string{"tcp 45.41.1.1:443", "tcp 45.41.1.1:80"}, []string{"tcp 45.41.1.1:22", "tcp 45.41.1.2:443"}},
		{"IPv6 address", []string{"tcp [2a0f:40::1]:8443"}, []string{"tcp [2a0f:40::1]:443", "tcp [2a0f:40::2]:8443"}},
		{"IPv6 block", []string{"tcp [2a0f:41:1234::5]:8443"}, []string{"tcp [2a0f:42::5]:8443"}},
		{"address, UDP", []string{"udp 45.42.1.1:7000"}, []string{"tcp 45.42.1.1:7000", "udp 45.42.1.1:7001"}},
		{"host of the hosts file", []string{"tcp host.docker.internal:11434", "tcp " + gateway + ":11434"}, []string{"tcp " + gateway + ":11435", "tcp host.docker.internal:80", "udp " + gateway + ":11434"}},
	} {
		t.Run(c.entry, func(t *testing.T) {
			for _, s := range c.works {
				sub(w, t).works(operation(s)...)
			}
			for _, s := range c.blocks {
				sub(w, t).blocked(operation(s)...)
			}
		})
	}
}

// operation is "tcp ADDR" or "udp ADDR", with something to be echoed except
// where the lab's web servers are.
func operation(s string) []string {
	if s[:3] == "tcp" && (strings.HasSuffix(s, ":443") || strings.HasSuffix(s, ":80")) {
		return []string{"tcp", "-timeout", "1s", s[4:]}
	}
	return []string{s[:3], "-timeout", "1s", "-send", "hello", s[4:]}
}

// sub is w on the account of a subtest.
func sub(w *world, t *testing.T) *world {
	c := *w
	c.T = t
	return &c
}

var _ = also(TestWorksLocalhost, everywhere)

// TestWorksLocalhost: the agent's own servers are its own affair.
func TestWorksLocalhost(t *testing.T) {
	w := confine(t, nameless, lab.BoxOptions{})
	for _, addr := range []string{"127.0.0.1:3000", "[::1]:3000", "127.4.5.6:3001", at(w.box.Addr4(), 3002), "[::]:3003"} {
		t.Run(addr, func(t *testing.T) {
			w := sub(w, t)
			server := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "listen", "-for", "3s", addr}})
			if !eventually(5*time.Second, func() bool { return w.poke("tcp", "-send", "hello", addr).OK }) {
				t.Errorf("not reached: %s", server.Stderr())
			}
		})
	}
	w.works("resolve", "localhost")
	if p := w.works("dns", at(lab.Upstream4, 53), "app.localhost", "A"); !slices.Equal(values(p, "addrs"), []string{"127.0.0.1"}) {
		t.Errorf("app.localhost: %s", p)
	}
	w.unasked()
	w.sealed()
}

var _ = also(TestWorksManyConnections, everywhere)

func TestWorksManyConnections(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	ok4, ok6 := named("ok.test")
	w.works("idle", "-n", "200", "-hold", "200ms", at(ok4, 443))
	w.works("loop", "-n", "200", "-c", "200", at(ok6, 443))
	w.works("loop", "-n", "200", "-c", "200", "-name", "ok.test", ":443")
	w.works("http", "-method", "POST", "-size", "4000000", "-timeout", "20s", "https://ok.test/upload")
}

var _ = also(TestWorksEngineDNS, everywhere)

// TestWorksEngineDNS: a user-defined network, whose names only the engine's
// resolver knows.
func TestWorksEngineDNS(t *testing.T) {
	l := newLab(t)
	l.DNS.SetAddrs("localai", "172.30.200.9")
	w := confineIn(t, l, "ok.test\nlocalai:8080\n", lab.BoxOptions{DockerDNS: true})
	w.works("http", "https://ok.test/")
	w.works("tcp", "-send", "hello", "localai:8080")
	w.works("dns", "127.0.0.11:53", "ok.test", "A")
	w.works("dns", "-tcp", "127.0.0.11:53", "ok.test", "AAAA")
	w.works("dns", at(lab.Upstream4, 53), "localai", "A")
	w.sealed(port53) // the engine's resolver is in the box, and its own rules lead there
}

var _ = also(TestWorksSearchDomains, everywhere)

// TestWorksSearchDomains: with ndots a stub resolver asks for every name
// below each search domain first; none of that reaches a server.
func TestWorksSearchDomains(t *testing.T) {
	l := newLab(t)
	l.DNS.SetAddrs("db.team.corp.test", "10.5.5.5")
	w := confineIn(t, l, "ok.test\ndb.team.corp.test:5432 private\n", lab.BoxOptions{
		Resolv: "nameserver 192.0.2.53\nsearch team.corp.test svc.cluster.local\noptions ndots:5\n"})
	w.works("http", "https://ok.test/")
	w.works("tcp", "-send", "hello", "db:5432")
	w.works("tcp", "-send", "hello", "db.team.corp.test:5432")
	w.blocked("resolve", "evil.test")
	for _, q := range l.Queries() {
		if q.Name != "ok.test" && q.Name != "db.team.corp.test" {
			t.Errorf("%s was asked for", q.Name)
		}
	}
	w.audited("the denied name", func(e event) bool { return e.Kind == "dns" && e.Name == "evil.test" })
	below := func(e event) bool {
		return strings.HasSuffix(e.Name, ".test.team.corp.test") || strings.HasSuffix(e.Name, ".cluster.local")
	}
	if found := w.audit(below); len(found) > 0 {
		t.Errorf("names below search domains are in the log: %v", found)
	}
}

var _ = also(TestWorksWithoutIPv6, everywhere)

func TestWorksWithoutIPv6(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{NoIPv6: true})
	w.works("http", "https://ok.test/")
	w.lab.DNS.SetAddrs("*.cdn.test", "45.30.0.21")
	w.works("http", "http://a.cdn.test/")
	w.works("tcp", "45.30.9.9:8443")
	evil4, evil6 := named("evil.test")
	w.blocked("tcp", at(evil4, 443))
	w.blocked("tcp", at(evil6, 443))
	w.blocked("resolve", "evil.test")
	w.sealed(lab.Not(port53), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 443)), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 80)), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 8443)))
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

var _ = also(TestWorksRequired, everywhere)

// TestWorksRequired: what the policy calls required is there from the start.
func TestWorksRequired(t *testing.T) {
	w := confine(t, "api.anthropic.com required\nok.test\n", lab.BoxOptions{})
	w.works("http", "-method", "POST", "-body", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`, "https://api.anthropic.com/v1/messages")
	l := newLab(t)
	l.DNS.Unset("api.anthropic.com")
	failing := startIn(t, l, "api.anthropic.com required\n", lab.BoxOptions{}, "agent-init", "run", "--", "echo", "started")
	r := failing.agent.Wait(time.Minute)
	if r.Code != 70 || r.Stdout != "" {
		t.Errorf("want 70 and no agent: %s", r)
	}
}

var _ = also(TestWorksNewUpstream, everywhere)

// TestWorksNewUpstream: a reload that names other DNS servers has them asked,
// and the old ones no more.
func TestWorksNewUpstream(t *testing.T) {
	w := confine(t, "ok.test\n*.cdn.test\n", lab.BoxOptions{})
	w.lab.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	must(t, w.box.WriteFile("/etc/agent-init/policy.yaml", []byte("dns:\n  upstream: [9.9.9.9]\n"), 0o644))
	if r := w.root("agent-init", "reload"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.lab.DNS.Forget()
	if !eventually(10*time.Second, func() bool { return w.poke("resolve", "new.cdn.test").OK }) {
		t.Error("names no longer resolve")
	}
	w.works("http", "https://ok.test/")
	for _, q := range w.lab.Queries() {
		if q.Server != netip.MustParseAddr("9.9.9.9") {
			t.Errorf("%s was asked of %s", q.Name, q.Server)
		}
	}
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}
