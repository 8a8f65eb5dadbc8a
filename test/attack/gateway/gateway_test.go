package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// keptBy starts a gateway and an agent behind it.
func keptBy(t *testing.T, list string, flags ...string) *rig.Kept {
	t.Helper()
	lab.Require(t)
	return keptIn(t, lab.New(t, lab.Options{}), list, flags...)
}

// keptIn does so in a lab where there may be other gateways.
func keptIn(t *testing.T, l *lab.Lab, list string, flags ...string) *rig.Kept {
	t.Helper()
	args := append([]string{"agent-init", "gateway", "--inside", "eth1"}, flags...)
	w := rig.StartIn(t, l, list, lab.BoxOptions{Gateway: true, Forwards: true}, args...)
	w.Ready()
	k := &rig.Kept{World: w}
	k.Agent = k.Another()
	w.Box.ForgetPackets()
	l.DNS.Forget()
	l.ForgetConns()
	return k
}

// unroute takes the agent's routes to everywhere, as on a network of an engine's that is internal.
func unroute(k *rig.Kept) {
	k.Helper()
	rig.Must(k.T, k.Agent.Net.Do(func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Gw != nil && err == nil {
				err = netlink.RouteDel(&r)
			}
		}
		return err
	}))
}

// TestGateway is the promise of a gateway in one test.
func TestGateway(t *testing.T) {
	k := keptBy(t, rig.Allowlist)
	k.Lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
	k.Works("http", "https://ok.test/")
	k.Works("http", "http://a.cdn.test/")
	k.Works("tcp", "-send", "hello", "45.30.9.9:8443")
	evil4, evil6 := rig.Named("evil.test")
	for _, target := range []string{rig.At(evil4, 443), rig.At(evil6, 443), "1.1.1.1:443", "169.254.169.254:80"} {
		if p := k.Blocked("tcp", target); !rig.RefusedAtOnce(p.Errno) {
			t.Errorf("%s: not refused at once: %s", target, p)
		}
	}
	k.Blocked("resolve", "evil.test")
	k.Unasked("evil.test")
	k.Sealed(lab.ToAddr(evil4.String()))
	k.Sealed(lab.ToAddr(evil6.String()))
	k.Sealed(lab.ToAddr("1.1.1.1"))
	k.Audited("the denied name", func(e rig.Event) bool { return e.Kind == "dns" && e.Verdict == "deny" && e.Name == "evil.test" })
	k.Audited("the refused packet", func(e rig.Event) bool { return e.Kind == "drop" && e.IP == evil4.String() && e.Port == 443 }) // see TestAllowedWorksAndNothingElse
	if s, code := k.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGatewayOwn: names are answered with the gateway's own address. So an agent needs no route, and the name inside a
// connection alone says where it goes.
func TestGatewayOwn(t *testing.T) {
	k := keptBy(t, "ok.test\n*.cdn.test\nok2.test read\nshared.test:8443 tls\n*.peer.test private\n45.30.9.9:8443\n", "--answer", "own")
	unroute(k)
	k.Lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
	k.Lab.DNS.SetAddrs("six.cdn.test", "2a0f:30::21")
	own4, own6 := k.Box.Inside4().String(), k.Box.Inside6().String()
	p := k.Works("resolve", "ok.test")
	for _, a := range rig.Values(p, "addrs") {
		if a != own4 && !strings.HasPrefix(a, "fd00:31:") && a != own6 {
			t.Errorf("ok.test is answered with %s", a)
		}
	}
	for _, tcp := range [][]string{nil, {"-tcp"}} {
		p := k.Works(append(append([]string{"dns"}, tcp...), rig.At(k.Box.Inside4(), 53), "ok.test", "A")...)
		if got := rig.Values(p, "answers"); len(got) == 0 || !strings.Contains(strings.Join(got, " "), own4) {
			t.Errorf("%v: ok.test is answered with %v", tcp, p)
		}
	}
	k.Works("http", "https://ok.test/")
	k.Works("http", "http://a.cdn.test/")
	k.Works("http", "https://six.cdn.test/")
	k.Works("http", "-insecure", "https://ok2.test/")
	k.AsRoot("tls", "-insecure", "-sni", "shared.test", own4+":8443") // whose server echoes, and speaks no TLS
	shared4, shared6 := rig.Named("shared.test")
	if k.Received(netip.AddrPortFrom(shared4, 8443))+k.Received(netip.AddrPortFrom(shared6, 8443)) == 0 {
		t.Error("shared.test:8443 was not reached by the name inside")
	}
	peer := k.Another()
	k.Lab.DNS.SetAddrs("a.peer.test", peer.Addr4().String(), peer.Addr6().String())
	k.Works("resolve", "a.peer.test")
	k.Blocked("http", "http://a.peer.test/") // a name of another agent's, which would answer at least by a reset
	if got := peer.Packets(lab.Routed); len(got) > 0 {
		t.Errorf("an agent was reached through the gate, and sent %v", got)
	}
	evil4, evil6 := rig.Named("evil.test")
	k.Box.ForgetPackets()
	for _, try := range [][]string{
		{"http", "-insecure", "-addr", own4 + ":443", "https://evil.test/"}, {"http", "-addr", own4 + ":80", "http://evil.test/"},
		{"http", "-insecure", "-addr", own4 + ":443", "https://ok.test.evil.test/"}, {"http", "-insecure", "-addr", own4 + ":8443", "https://ok.test/"},
		{"http", "-insecure", "-method", "POST", "https://ok2.test/"}, {"resolve", "evil.test"},
		{"tcp", rig.At(evil4, 443)}, {"tcp", rig.At(evil6, 443)}, {"tcp", "45.30.9.9:8443"}, {"tcp", own4 + ":22"}, {"tcp", rig.At(k.Box.Addr4(), 443)},
	} {
		k.Blocked(try...)
	}
	k.Unasked("evil.test")
	mine, gate := hardware(t, k.Agent, "eth0"), hardware(t, k.Box, "eth1")
	for _, dst := range []craft{{src: k.Agent.Addr4(), dst: evil4}, {src: k.Agent.Addr6(), dst: evil6}, {src: k.Agent.Addr4(), dst: fine4}} {
		dst.from, dst.to = mine, gate
		send(k, dst.udp(4000, 9, "LEAK").hex(), dst.tcp(4000, 443, 2, "").hex(), dst.tcp(4000, 8443, 2, "").hex())
	}
	k.Works("http", "https://ok.test/") // behind these, by the same way
	for _, a := range []string{evil4.String(), evil6.String(), fine4.String()} {
		k.Sealed(lab.ToAddr(a))
	}
	k.Audited("the denied name", func(e rig.Event) bool { return e.Kind == "connect" && e.Verdict == "deny" && e.Name == "evil.test" })
	ok4, ok6 := rig.Named("ok.test")
	k.Audited("where the allowed name was", func(e rig.Event) bool {
		return e.Kind == "connect" && e.Verdict == "allow" && e.Name == "ok.test" && (e.IP == ok4.String() || e.IP == ok6.String())
	})
	if r := k.Root("agent-init", "deny", "ok.test"); r.Code != 0 {
		t.Fatal(r)
	}
	k.Blocked("http", "-insecure", "-addr", own4+":443", "https://ok.test/")
	if s, code := k.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGatewayOneInterface: where names are answered with the gateway's own address, its agents may be behind the
// interface that is its way out. They are told by their addresses, and nobody else is served.
func TestGatewayOneInterface(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{}, "agent-init", "gateway", "--inside", "172.30.0.0/24", "--answer", "own")
	w.Ready()
	gate := w.Box.Addr4()
	ask := func(from netip.Addr, name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if from == w.Box.Neighbor4() && name == "ok.test" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), lab.Patience)
		}
		defer cancel()
		c, err := l.Internet.Dial(ctx, "tcp", rig.At(gate, 443), netip.AddrPortFrom(from, 0))
		if err != nil {
			return err
		}
		defer c.Close()
		return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(ctx)
	}
	if err := ask(w.Box.Neighbor4(), "ok.test"); err != nil {
		t.Errorf("an agent: %v", err)
	}
	if ask(w.Box.Neighbor4(), "evil.test") == nil {
		t.Error("an agent reached another name")
	}
	if err := ask(netip.MustParseAddr("198.18.7.7"), "ok.test"); err == nil {
		t.Error("somebody else was served")
	}
	var nobody net.Error
	if _, err := l.Internet.Dial(t.Context(), "tcp", rig.At(gate, 8022), netip.AddrPortFrom(w.Box.Neighbor4(), 0)); err == nil || errors.As(err, &nobody) && nobody.Timeout() {
		t.Errorf("what does not lead anywhere is not refused at once: %v", err)
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}
