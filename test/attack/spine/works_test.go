package spine

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestWorksNames, rig.Everywhere)

// TestWorksNames: both families, both schemes, exact names and wildcards.
func TestWorksNames(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("cdn.test", "45.30.0.20", "2a0f:30::20")
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.21", "2a0f:30::21")
	l.DNS.SetAddrs("notcdn.test", "45.30.0.22")
	l.DNS.Set("www.ok.test", lab.Answer{CNAME: "www.edge.test"})
	l.DNS.Set("www.edge.test", lab.Answer{CNAME: "pop7.edge.test"})
	l.DNS.SetAddrs("pop7.edge.test", "45.30.0.23", "2a0f:30::23")
	w := rig.ConfineIn(t, l, "ok.test\nwww.ok.test\n*.cdn.test\nxn--mnchen-3ya.test\nMIXED.ok.test.\n", lab.BoxOptions{})
	l.DNS.SetAddrs("xn--mnchen-3ya.test", "45.30.0.24")
	l.DNS.SetAddrs("mixed.ok.test", "45.30.0.25")
	for _, scheme := range []string{"http", "https"} {
		for _, host := range []string{"ok.test", "www.ok.test", "cdn.test", "a.cdn.test", "b.a.cdn.test"} {
			w.Works("http", scheme+"://"+host+"/")
		}
	}
	for _, host := range []string{"ok.test", "cdn.test", "a.cdn.test", "www.ok.test"} {
		p := w.Works("resolve", host)
		if len(rig.Values(p, "addrs")) != 2 {
			t.Errorf("%s: want an address of each family: %s", host, p)
		}
		for _, s := range rig.Values(p, "addrs") {
			a := netip.MustParseAddr(s)
			w.Works("http", "-addr", rig.At(a, 443), "https://"+host+"/")
			w.Works("http", "-addr", rig.At(a, 80), "http://"+host+"/")
		}
	}
	if n := len(l.Web.Requests("ok.test")); n != 6 {
		t.Errorf("%d requests for ok.test arrived, want 6", n)
	}
	for _, host := range []string{"münchen.test", "xn--mnchen-3ya.test", "mixed.ok.test", "MiXed.oK.TEST."} {
		if !rig.Eventually(5*time.Second, func() bool { return w.Poke("http", "http://"+host+"/").OK }) {
			t.Errorf("%s does not work", host)
		}
	}
	w.Blocked("http", "http://notcdn.test/")
	w.Blocked("http", "http://sub.ok.test/")
}

var _ = rig.Also(TestWorksRotation, rig.Everywhere)

func TestWorksRotation(t *testing.T) {
	l := rig.NewLab(t)
	first, second := netip.MustParseAddr("45.30.20.1"), netip.MustParseAddr("45.30.20.2")
	l.DNS.Set("moving.test", lab.Answer{Addrs: []netip.Addr{first}, TTL: 1})
	w := rig.ConfineIn(t, l, "moving.test\n", lab.BoxOptions{})
	resolves := func(a netip.Addr) func() bool {
		return func() bool {
			return slices.Equal(rig.Values(w.Poke("dns", rig.At(lab.Upstream4, 53), "moving.test", "A"), "addrs"), []string{a.String()})
		}
	}
	if !rig.Eventually(5*time.Second, resolves(first)) {
		t.Fatal("not resolved")
	}
	l.DNS.Set("moving.test", lab.Answer{Addrs: []netip.Addr{second}, TTL: 1})
	if !rig.Eventually(10*time.Second, resolves(second)) {
		t.Fatal("the new address never came")
	}
	w.Works("http", "-addr", rig.At(second, 443), "https://moving.test/")
	w.Works("http", "-addr", rig.At(first, 443), "https://moving.test/") // for a client that resolved just before

	// Many addresses, a few at a time, as large services do it.
	l.DNS.Set("moving.test", lab.Answer{Addrs: rig.Many("45.30.21.1", 100), Rotate: 8, ZeroTTL: true})
	w.Works("loop", "-n", "300", "-c", "4", "-name", "moving.test", ":443")
}

var _ = rig.Also(TestWorksLongLived, rig.Everywhere)

// TestWorksLongLived: a connection outlives the lease that it began under.
func TestWorksLongLived(t *testing.T) {
	l := rig.NewLab(t)
	first, second := netip.MustParseAddr("45.30.22.1"), netip.MustParseAddr("45.30.22.2")
	l.DNS.Set("stream.test", lab.Answer{Addrs: []netip.Addr{first}, TTL: 1})
	w := rig.ConfineIn(t, l, "stream.test:8443\n", lab.BoxOptions{Files: []lab.File{{
		Path: "/etc/agent-init/policy.yaml", Data: []byte("limits:\n  addrs_per_name: 1\n")}}})
	w.Works("resolve", "stream.test")
	held := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "tcp", "-hold", "5s", rig.At(first, 8443)}})
	arrived := func() bool {
		return slices.ContainsFunc(l.Conns(), func(c lab.Conn) bool { return c.Dst == netip.AddrPortFrom(first, 8443) && c.Total > 0 })
	}
	if !rig.Eventually(10*time.Second, arrived) {
		t.Fatalf("not connected: %s", held.Stderr())
	}
	// One address per name: the next one takes the first one's place.
	l.DNS.Set("stream.test", lab.Answer{Addrs: []netip.Addr{second}, TTL: 1})
	if !rig.Eventually(5*time.Second, func() bool { w.Poke("resolve", "stream.test"); return w.Leases()[first] == 0 }) {
		t.Fatalf("still leased for %v", w.Leases()[first])
	}
	w.Blocked("tcp", rig.At(first, 8443))
	r := held.Wait(0)
	if p, err := lab.ParsePoke(r.Stdout); err != nil || !p.OK {
		t.Errorf("the connection did not live on: %v %s", err, r)
	}
}

var _ = rig.Also(TestWorksEntries, rig.Everywhere)

// TestWorksEntries: each kind of entry opens what it says, and no more.
func TestWorksEntries(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("ntp.ok.test", "45.30.30.1", "2a0f:30:30::1")
	l.DNS.SetAddrs("git.ok.test", "45.30.30.2")
	l.DNS.SetAddrs("registry.corp.test", "10.20.30.40")
	l.DNS.SetAddrs("*.lan.test", "192.168.7.7", "fd00:7::7")
	l.DNS.SetAddrs("named.corp.test", "10.44.1.2")
	l.DNS.SetAddrs("localai", "172.30.200.9")
	w := rig.ConfineIn(t, l, `
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
`+rig.SidecarEntry("172.30.0.1:11434\n"), lab.BoxOptions{Hosts: []string{"172.30.0.1 host.docker.internal"}})
	gateway := w.Box.Gateway4().String()
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
				rig.Sub(w, t).Works(operation(s)...)
			}
			for _, s := range c.blocks {
				rig.Sub(w, t).Blocked(operation(s)...)
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

var _ = rig.Also(TestWorksLocalhost, rig.Everywhere)

// TestWorksLocalhost: the agent's own servers are its own affair.
func TestWorksLocalhost(t *testing.T) {
	w := rig.Confine(t, rig.Nameless, lab.BoxOptions{})
	for _, addr := range []string{"127.0.0.1:3000", "[::1]:3000", "127.4.5.6:3001", rig.At(w.Box.Addr4(), 3002), "[::]:3003"} {
		t.Run(addr, func(t *testing.T) {
			w := rig.Sub(w, t)
			server := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "listen", "-for", "3s", addr}})
			if !rig.Eventually(5*time.Second, func() bool { return w.Poke("tcp", "-send", "hello", addr).OK }) {
				t.Errorf("not reached: %s", server.Stderr())
			}
		})
	}
	w.Works("resolve", "localhost")
	if p := w.Works("dns", rig.At(lab.Upstream4, 53), "app.localhost", "A"); !slices.Equal(rig.Values(p, "addrs"), []string{"127.0.0.1"}) {
		t.Errorf("app.localhost: %s", p)
	}
	w.Unasked()
	w.Sealed()
}

var _ = rig.Also(TestWorksManyConnections, rig.Everywhere)

func TestWorksManyConnections(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	ok4, ok6 := rig.Named("ok.test")
	w.Works("idle", "-n", "200", "-hold", "200ms", rig.At(ok4, 443))
	w.Works("loop", "-n", "200", "-c", "200", rig.At(ok6, 443))
	w.Works("loop", "-n", "200", "-c", "200", "-name", "ok.test", ":443")
	w.Works("http", "-method", "POST", "-size", "4000000", "-timeout", "20s", "https://ok.test/upload")
}

var _ = rig.Also(TestWorksEngineDNS, rig.Everywhere)

// TestWorksEngineDNS: a user-defined network, whose names only the engine's
// resolver knows.
func TestWorksEngineDNS(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("localai", "172.30.200.9")
	w := rig.ConfineIn(t, l, "ok.test\nlocalai:8080\n", lab.BoxOptions{DockerDNS: true})
	w.Works("http", "https://ok.test/")
	w.Works("tcp", "-send", "hello", "localai:8080")
	w.Works("dns", "127.0.0.11:53", "ok.test", "A")
	w.Works("dns", "-tcp", "127.0.0.11:53", "ok.test", "AAAA")
	w.Works("dns", rig.At(lab.Upstream4, 53), "localai", "A")
	w.Sealed(rig.Port53) // the engine's resolver is in the box, and its own rules lead there
}

var _ = rig.Also(TestWorksSearchDomains, rig.Everywhere)

// TestWorksSearchDomains: with ndots a stub resolver asks for every name
// below each search domain first; none of that reaches a server.
func TestWorksSearchDomains(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("db.team.corp.test", "10.5.5.5")
	w := rig.ConfineIn(t, l, "ok.test\ndb.team.corp.test:5432 private\n", lab.BoxOptions{
		Resolv: "nameserver 192.0.2.53\nsearch team.corp.test svc.cluster.local\noptions ndots:5\n"})
	w.Works("http", "https://ok.test/")
	w.Works("tcp", "-send", "hello", "db:5432")
	w.Works("tcp", "-send", "hello", "db.team.corp.test:5432")
	w.Blocked("resolve", "evil.test")
	for _, q := range l.Queries() {
		if q.Name != "ok.test" && q.Name != "db.team.corp.test" {
			t.Errorf("%s was asked for", q.Name)
		}
	}
	w.Audited("the denied name", func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "evil.test" })
	below := func(e rig.Event) bool {
		return strings.HasSuffix(e.Name, ".test.team.corp.test") || strings.HasSuffix(e.Name, ".cluster.local")
	}
	if found := w.Audit(below); len(found) > 0 {
		t.Errorf("names below search domains are in the log: %v", found)
	}
}

var _ = rig.Also(TestWorksWithoutIPv6, rig.Everywhere)

func TestWorksWithoutIPv6(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{NoIPv6: true})
	w.Works("http", "https://ok.test/")
	w.Lab.DNS.SetAddrs("*.cdn.test", "45.30.0.21")
	w.Works("http", "http://a.cdn.test/")
	w.Works("tcp", "45.30.9.9:8443")
	evil4, evil6 := rig.Named("evil.test")
	w.Blocked("tcp", rig.At(evil4, 443))
	w.Blocked("tcp", rig.At(evil6, 443))
	w.Blocked("resolve", "evil.test")
	w.Sealed(lab.Not(rig.Port53), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 443)), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 80)), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 8443)))
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

var _ = rig.Also(TestWorksRequired, rig.Everywhere)

// TestWorksRequired: what the policy calls required is there from the start.
func TestWorksRequired(t *testing.T) {
	w := rig.Confine(t, "api.anthropic.com required\nok.test\n", lab.BoxOptions{})
	w.Works("http", "-method", "POST", "-body", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`, "https://api.anthropic.com/v1/messages")
	l := rig.NewLab(t)
	l.DNS.Unset("api.anthropic.com")
	failing := rig.StartIn(t, l, "api.anthropic.com required\n", lab.BoxOptions{}, "agent-init", "run", "--", "echo", "started")
	r := failing.Agent.Wait(time.Minute)
	if r.Code != 70 || r.Stdout != "" {
		t.Errorf("want 70 and no agent: %s", r)
	}
}

var _ = rig.Also(TestWorksNewUpstream, rig.Everywhere)

// TestWorksNewUpstream: a reload that names other DNS servers has them asked,
// and the old ones no more.
func TestWorksNewUpstream(t *testing.T) {
	w := rig.Confine(t, "ok.test\n*.cdn.test\n", lab.BoxOptions{})
	w.Lab.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/policy.yaml", []byte("dns:\n  upstream: [9.9.9.9]\n"), 0o644))
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.Lab.DNS.Forget()
	if !rig.Eventually(10*time.Second, func() bool { return w.Poke("resolve", "new.cdn.test").OK }) {
		t.Error("names no longer resolve")
	}
	w.Works("http", "https://ok.test/")
	for _, q := range w.Lab.Queries() {
		if q.Server != netip.MustParseAddr("9.9.9.9") {
			t.Errorf("%s was asked of %s", q.Name, q.Server)
		}
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}
