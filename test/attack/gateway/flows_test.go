package gateway

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestGatewayRevoked: what is under way by the forward path ends when its address is taken out, whatever it was let
// out for, and what is under way through the gate as well.
func TestGatewayRevoked(t *testing.T) {
	k := keptBy(t, "ok.test\nok.test:8444\n45.30.9.9:8443\n45.30.9.10:8443\n")
	k.Works("resolve", "ok.test")
	ok4, ok6 := rig.Named("ok.test")
	stream := func(to netip.AddrPort) *lab.Process {
		p := k.Agent.ExecStart(lab.Cmd{Args: []string{"poke", "tcp", "-hold", "10m", "-oneway", to.String()}})
		if !rig.Eventually(lab.Patience, func() bool { return k.Received(to) > 0 }) {
			t.Fatalf("no stream to %s: %s", to, p.Stdout())
		}
		return p
	}
	fixed, other := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.10:8443")
	leased4, leased6 := netip.AddrPortFrom(ok4, 8444), netip.AddrPortFrom(ok6, 8444)
	under := map[netip.AddrPort]*lab.Process{fixed: stream(fixed), leased4: stream(leased4), leased6: stream(leased6)}
	lives := stream(other)
	for _, target := range []string{"45.30.9.9:8443", "ok.test"} {
		begun := time.Now()
		if r := k.Root("agent-init", "deny", target); r.Code != 0 {
			t.Fatalf("deny %s: %s", target, r)
		}
		// From here on no packet goes there, but for the reset by which the guard ends its own.
		k.Box.ForgetPackets()
		t.Logf("denied %s in %v", target, time.Since(begun))
	}
	for to, p := range under {
		r, err := lab.ParsePoke(p.Wait(lab.Patience).Stdout)
		rig.Must(t, err)
		if r.OK || r.Errno != "ECONNRESET" && r.Errno != "EHOSTUNREACH" && r.Errno != "EPIPE" {
			t.Errorf("%s: not ended by the denial: %s", to, r)
		}
		if got := escaped(k, lab.ToAddr(to.Addr().String())); len(got) > 0 {
			t.Errorf("%s: %d packets after the denial, the first of them %s", to, len(got), got[0])
		}
	}
	before := k.Received(other)
	if !rig.Eventually(lab.Patience, func() bool { return k.Received(other) > before+2 }) {
		t.Errorf("ended with others: %s", lives.Stdout())
	}
}

// ears are datagrams that reach a box, on port 7002 of all its IPv4 addresses and on 7003 of all of IPv6. They are told
// once, at the end.
func ears(k *rig.Kept, b *lab.Box) (heard func() []string) {
	k.Helper()
	p := b.ExecStart(lab.Cmd{Args: []string{"poke", "recv", "-for", "1h", "0.0.0.0:7002", "[::]:7003"}})
	bound := func() bool {
		r := b.Exec(lab.Cmd{Args: []string{"cat", "/proc/net/udp", "/proc/net/udp6"}})
		return strings.Contains(r.Stdout, ":1B5A ") && strings.Contains(r.Stdout, ":1B5B ")
	}
	if !rig.Eventually(lab.Patience, bound) {
		k.Fatal("nothing listens")
	}
	return func() []string {
		k.Helper()
		b.Poke(0, "udp", "-noreply", "-send", "end", "127.0.0.1:7002")
		return rig.Values(rig.Verdict(k.T, p), "datagrams")
	}
}

// TestGatewayInward: nobody outside begins anything with an agent, and no agent with another one by way of the gateway.
func TestGatewayInward(t *testing.T) {
	k := keptBy(t, rig.Allowlist)
	other := k.Another()
	first, second := ears(k, k.Agent), ears(k, other)
	// They are neighbours, whom nothing keeps apart.
	k.Works("udp", "-noreply", "-send", "hello", rig.At(other.Addr4(), 7002))
	mine, gate := hardware(t, k.Agent, "eth0"), hardware(t, k.Box, "eth1")
	by4 := craft{from: mine, to: gate, src: k.Agent.Addr4(), dst: other.Addr4()}
	by6 := craft{from: mine, to: gate, src: k.Agent.Addr6(), dst: other.Addr6()}
	send(k, by4.udp(4500, 7002, "LEAK").hex(), by6.udp(4500, 7003, "LEAK").hex(), by4.tcp(4500, 7004, 2, "").hex())
	rig.Must(t, k.Lab.Internet.Do(func() error {
		for _, r := range []struct{ to, via netip.Addr }{{k.Agent.Addr4(), k.Box.Addr4()}, {k.Agent.Addr6(), k.Box.Addr6()}} {
			dst := &net.IPNet{IP: r.to.AsSlice(), Mask: net.CIDRMask(r.to.BitLen(), r.to.BitLen())}
			if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: r.via.AsSlice()}); err != nil {
				return err
			}
		}
		for _, to := range []string{rig.At(k.Agent.Addr4(), 7002), rig.At(k.Agent.Addr6(), 7003)} {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			if _, err := c.Write([]byte("LEAK")); err != nil {
				return err
			}
			c.Close()
		}
		return nil
	}))
	k.Works("http", "https://ok.test/") // behind these, both ways
	if got := first(); len(got) > 0 {
		t.Errorf("an agent was reached from outside: %v", got)
	}
	if got := second(); len(got) != 1 || !strings.HasSuffix(got[0], "hello") {
		t.Errorf("an agent was reached by %v; want what its neighbour sent past the gateway", got)
	}
}

// TestGatewayBroker: agents have a broker behind a gateway as well, by its token.
func TestGatewayBroker(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	model := &fakellm.Model{Key: rig.BrokerKey}
	l.DNS.SetAddrs("api.anthropic.com", "45.30.50.1", "2a0f:30::50")
	l.Web.Handle("api.anthropic.com", model)
	w := rig.StartIn(t, l, "ok.test\nok2.test read\n", lab.BoxOptions{Gateway: true, Forwards: true, Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker:\n  anthropic:\n    credential: file:/run/secrets/anthropic\n")},
		{Path: "/run/secrets/anthropic", Data: []byte(rig.BrokerKey + "\n"), Mode: 0o400},
		{Path: rig.Bundle, Data: l.CA.PEM},
	}}, "agent-init", "gateway", "--inside", "eth1")
	w.Ready()
	k := &rig.Kept{World: w}
	k.Agent = k.Another()
	show := func(name string) string {
		r := w.Root("sh", "-c", `. /run/agent-init/broker.env; printf %s "$`+name+`"`)
		if r.Code != 0 {
			t.Fatal(r)
		}
		return r.Stdout
	}
	base, token := show("ANTHROPIC_BASE_URL"), show("ANTHROPIC_AUTH_TOKEN")
	if !strings.HasPrefix(base, "http://"+k.Box.Inside4().String()+":") {
		t.Fatalf("the agents ask %q", base)
	}
	ask := []string{"http", "-method", "POST", "-header", "content-type: application/json", "-header", "anthropic-version: 2023-06-01", "-body", rig.Prompt}
	k.Works(append(ask, "-header", "authorization: Bearer "+token, base+"/v1/messages")...)
	k.Blocked(append(ask, "-header", "authorization: Bearer wrong", base+"/v1/messages")...)
	k.Blocked("resolve", "api.anthropic.com")
	k.Blocked("tcp", "45.30.50.1:443")
	k.Works("http", "-insecure", "https://ok2.test/") // request by request
	if p := k.Blocked("http", "-insecure", "-method", "POST", "https://ok2.test/"); p.Detail["status"] != 403.0 {
		t.Errorf("not refused by the broker: %s", p)
	}
}

// TestGatewayRefused: what can't be a gateway does not start as one, and says why.
func TestGatewayRefused(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for _, c := range []struct {
		what  string
		opts  lab.BoxOptions
		flags []string
		code  int
		says  string
	}{
		{"nothing inside", lab.BoxOptions{}, nil, 64, "where the agents are"},
		{"no such interface", lab.BoxOptions{}, []string{"--inside", "eth7"}, 64, "there is no interface eth7"},
		{"no such network", lab.BoxOptions{}, []string{"--inside", "10.9.0.0/16"}, 64, "no interface has an address in 10.9.0.0/16"},
		{"the way out inside", lab.BoxOptions{Gateway: true}, []string{"--inside", "eth0"}, 64, "is this container's way out as well"},
		{"two networks", lab.BoxOptions{Gateway: true}, []string{"--inside", "eth0", "--inside", "eth1"}, 64, "behind two interfaces"},
		{"another backend", lab.BoxOptions{Gateway: true}, []string{"--inside", "eth1", "--backend", "xtables"}, 64, "needs the backend nftables"},
		{"a kernel that forwards nothing", lab.BoxOptions{Gateway: true}, []string{"--inside", "eth1"}, 71, "net.ipv4.ip_forward=1"},
		{"a flag of others", lab.BoxOptions{Gateway: true}, []string{"--inside", "eth1", "--inbound", "3000"}, 64, "has no flag --inbound"},
		{"inbound", lab.BoxOptions{Gateway: true, Forwards: true, Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("inbound: [3000]\n")}}}, []string{"--inside", "eth1"}, 78, "lets nothing in"},
	} {
		c.opts.Binary = lab.Binary(t)
		b := l.NewBox(c.opts)
		r := b.Start(lab.Cmd{Args: append([]string{"agent-init", "gateway"}, c.flags...)}).Wait(lab.Patience)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) {
			t.Errorf("%s: %s", c.what, r)
		}
	}
}

// TestGatewayEngine: behind an engine's DNS server, and with a guard that has ended and come back, agents are served
// as before.
func TestGatewayEngine(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Gateway: true, DockerDNS: true}, "agent-init", "gateway", "--inside", "172.31.0.0/24", "--answer", "own")
	w.Ready()
	k := &rig.Kept{World: w}
	k.Agent = k.Another()
	unroute(k)
	k.Works("http", "https://ok.test/")
	k.Blocked("resolve", "evil.test")
	before := w.Restarts()
	rig.Must(t, unix.Kill(w.Guard().Host, unix.SIGKILL))
	if !rig.Eventually(lab.Patience, func() bool { s, code := w.Status(); return code == 0 && s != nil && w.Restarts() > before }) {
		t.Fatal("the guard does not come back")
	}
	k.Works("http", "https://ok.test/")
	k.Blocked("resolve", "evil.test")
	k.Unasked("evil.test")
}
