package attack

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
)

// kept is an agent behind a gateway: a container of its own, on a network that leads to nobody else.
type kept struct {
	*world          // of the gateway
	agent  *lab.Box // whose root has what Docker gives by default
}

// dockerCaps are those that Docker gives by default.
func dockerCaps() []string {
	return strings.Fields("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE")
}

// keptBy starts a gateway and an agent behind it.
func keptBy(t *testing.T, list string, flags ...string) *kept {
	t.Helper()
	lab.Require(t)
	return keptIn(t, lab.New(t, lab.Options{}), list, flags...)
}

// keptIn does so in a lab where there may be other gateways.
func keptIn(t *testing.T, l *lab.Lab, list string, flags ...string) *kept {
	t.Helper()
	args := append([]string{"agent-init", "gateway", "--inside", "eth1"}, flags...)
	w := startIn(t, l, list, lab.BoxOptions{Gateway: true, Forwards: true}, args...)
	w.ready()
	k := &kept{world: w}
	k.agent = k.another()
	w.box.ForgetPackets()
	l.DNS.Forget()
	l.ForgetConns()
	return k
}

// another is one more agent behind the gateway.
func (k *kept) another() *lab.Box {
	k.Helper()
	b := k.lab.NewBox(lab.BoxOptions{Behind: k.box, Caps: dockerCaps()})
	b.Idle()
	return b
}

// unroute takes the agent's routes to everywhere, as on a network of an engine's that is internal.
func (k *kept) unroute() {
	k.Helper()
	must(k.T, k.agent.Net.Do(func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Gw != nil && err == nil {
				err = netlink.RouteDel(&r)
			}
		}
		return err
	}))
}

// asRoot tries one operation as root of the agent's container.
func (k *kept) asRoot(args ...string) lab.Poke { return k.agent.Poke(0, args...) }

func (k *kept) works(args ...string) lab.Poke {
	k.Helper()
	p := k.asRoot(append([]string{"-patient"}, args...)...)
	if !p.OK {
		k.Errorf("does not work: %v: %s", args, p)
	}
	return p
}

func (k *kept) blocked(args ...string) lab.Poke {
	k.Helper()
	p := k.asRoot(args...)
	if p.OK {
		k.Errorf("got through: %v: %s", args, p)
	}
	return p
}

// TestGateway is the promise of a gateway in one test.
func TestGateway(t *testing.T) {
	k := keptBy(t, allowlist)
	k.lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
	k.works("http", "https://ok.test/")
	k.works("http", "http://a.cdn.test/")
	k.works("tcp", "-send", "hello", "45.30.9.9:8443")
	evil4, evil6 := named("evil.test")
	for _, target := range []string{at(evil4, 443), at(evil6, 443), "1.1.1.1:443", "169.254.169.254:80"} {
		if p := k.blocked("tcp", target); !refusedAtOnce(p.Errno) {
			t.Errorf("%s: not refused at once: %s", target, p)
		}
	}
	k.blocked("resolve", "evil.test")
	k.unasked("evil.test")
	k.sealed(lab.ToAddr(evil4.String()))
	k.sealed(lab.ToAddr(evil6.String()))
	k.sealed(lab.ToAddr("1.1.1.1"))
	k.audited("the denied name", func(e event) bool { return e.Kind == "dns" && e.Verdict == "deny" && e.Name == "evil.test" })
	k.audited("the refused packet", func(e event) bool { return e.Kind == "drop" && e.IP == evil4.String() && e.Port == 443 }) // see TestAllowedWorksAndNothingElse
	if s, code := k.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGatewayOwn: names are answered with the gateway's own address. So an agent needs no route, and the name inside a
// connection alone says where it goes.
func TestGatewayOwn(t *testing.T) {
	k := keptBy(t, "ok.test\n*.cdn.test\nok2.test read\nshared.test:8443 tls\n*.peer.test private\n45.30.9.9:8443\n", "--answer", "own")
	k.unroute()
	k.lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
	k.lab.DNS.SetAddrs("six.cdn.test", "2a0f:30::21")
	own4, own6 := k.box.Inside4().String(), k.box.Inside6().String()
	p := k.works("resolve", "ok.test")
	for _, a := range values(p, "addrs") {
		if a != own4 && !strings.HasPrefix(a, "fd00:31:") && a != own6 {
			t.Errorf("ok.test is answered with %s", a)
		}
	}
	for _, tcp := range [][]string{nil, {"-tcp"}} {
		p := k.works(append(append([]string{"dns"}, tcp...), at(k.box.Inside4(), 53), "ok.test", "A")...)
		if got := values(p, "answers"); len(got) == 0 || !strings.Contains(strings.Join(got, " "), own4) {
			t.Errorf("%v: ok.test is answered with %v", tcp, p)
		}
	}
	k.works("http", "https://ok.test/")
	k.works("http", "http://a.cdn.test/")
	k.works("http", "https://six.cdn.test/")
	k.works("http", "-insecure", "https://ok2.test/")
	k.asRoot("tls", "-insecure", "-sni", "shared.test", own4+":8443") // whose server echoes, and speaks no TLS
	shared4, shared6 := named("shared.test")
	if k.received(netip.AddrPortFrom(shared4, 8443))+k.received(netip.AddrPortFrom(shared6, 8443)) == 0 {
		t.Error("shared.test:8443 was not reached by the name inside")
	}
	peer := k.another()
	k.lab.DNS.SetAddrs("a.peer.test", peer.Addr4().String(), peer.Addr6().String())
	k.works("resolve", "a.peer.test")
	k.blocked("http", "http://a.peer.test/") // a name of another agent's, which would answer at least by a reset
	if got := peer.Packets(lab.Routed); len(got) > 0 {
		t.Errorf("an agent was reached through the gate, and sent %v", got)
	}
	evil4, evil6 := named("evil.test")
	k.box.ForgetPackets()
	for _, try := range [][]string{
		{"http", "-insecure", "-addr", own4 + ":443", "https://evil.test/"}, {"http", "-addr", own4 + ":80", "http://evil.test/"},
		{"http", "-insecure", "-addr", own4 + ":443", "https://ok.test.evil.test/"}, {"http", "-insecure", "-addr", own4 + ":8443", "https://ok.test/"},
		{"http", "-insecure", "-method", "POST", "https://ok2.test/"}, {"resolve", "evil.test"},
		{"tcp", at(evil4, 443)}, {"tcp", at(evil6, 443)}, {"tcp", "45.30.9.9:8443"}, {"tcp", own4 + ":22"}, {"tcp", at(k.box.Addr4(), 443)},
	} {
		k.blocked(try...)
	}
	k.unasked("evil.test")
	mine, gate := hardware(t, k.agent, "eth0"), hardware(t, k.box, "eth1")
	for _, dst := range []craft{{src: k.agent.Addr4(), dst: evil4}, {src: k.agent.Addr6(), dst: evil6}, {src: k.agent.Addr4(), dst: fine4}} {
		dst.from, dst.to = mine, gate
		k.send(dst.udp(4000, 9, "LEAK").hex(), dst.tcp(4000, 443, 2, "").hex(), dst.tcp(4000, 8443, 2, "").hex())
	}
	k.works("http", "https://ok.test/") // behind these, by the same way
	for _, a := range []string{evil4.String(), evil6.String(), fine4.String()} {
		k.sealed(lab.ToAddr(a))
	}
	k.audited("the denied name", func(e event) bool { return e.Kind == "connect" && e.Verdict == "deny" && e.Name == "evil.test" })
	ok4, ok6 := named("ok.test")
	k.audited("where the allowed name was", func(e event) bool {
		return e.Kind == "connect" && e.Verdict == "allow" && e.Name == "ok.test" && (e.IP == ok4.String() || e.IP == ok6.String())
	})
	if r := k.root("agent-init", "deny", "ok.test"); r.Code != 0 {
		t.Fatal(r)
	}
	k.blocked("http", "-insecure", "-addr", own4+":443", "https://ok.test/")
	if s, code := k.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGatewayOneInterface: where names are answered with the gateway's own address, its agents may be behind the
// interface that is its way out. They are told by their addresses, and nobody else is served.
func TestGatewayOneInterface(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := startIn(t, l, "ok.test\n", lab.BoxOptions{}, "agent-init", "gateway", "--inside", "172.30.0.0/24", "--answer", "own")
	w.ready()
	gate := w.box.Addr4()
	ask := func(from netip.Addr, name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if from == w.box.Neighbor4() && name == "ok.test" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), lab.Patience)
		}
		defer cancel()
		c, err := l.Internet.Dial(ctx, "tcp", at(gate, 443), netip.AddrPortFrom(from, 0))
		if err != nil {
			return err
		}
		defer c.Close()
		return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(ctx)
	}
	if err := ask(w.box.Neighbor4(), "ok.test"); err != nil {
		t.Errorf("an agent: %v", err)
	}
	if ask(w.box.Neighbor4(), "evil.test") == nil {
		t.Error("an agent reached another name")
	}
	if err := ask(netip.MustParseAddr("198.18.7.7"), "ok.test"); err == nil {
		t.Error("somebody else was served")
	}
	var nobody net.Error
	if _, err := l.Internet.Dial(t.Context(), "tcp", at(gate, 8022), netip.AddrPortFrom(w.box.Neighbor4(), 0)); err == nil || errors.As(err, &nobody) && nobody.Timeout() {
		t.Errorf("what does not lead anywhere is not refused at once: %v", err)
	}
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}
