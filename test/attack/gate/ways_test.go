package gate

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// carrying confines a box with names of which each address echoes what comes, on some ports.
func carrying(t *testing.T, list string, addrs map[string]netip.Addr, ports ...uint16) (*gated, map[netip.AddrPort]*rig.Tap) {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for name, a := range addrs {
		l.DNS.SetAddrs(name, a.String())
	}
	w := rig.ConfineIn(t, l, list, lab.BoxOptions{})
	taps := map[netip.AddrPort]*rig.Tap{}
	for name, a := range addrs {
		w.Works("resolve", name)
		for _, port := range ports {
			if ap := netip.AddrPortFrom(a, port); taps[ap] == nil {
				taps[ap] = w.Tap(a, port, "", rig.Echoed)
			}
		}
	}
	return &gated{World: w}, taps
}

// begun selects what is sent to an address, but for what goes on on a connection.
func begun(to netip.Addr) lab.Filter {
	return func(p *lab.Packet) bool { return p.Dst == to && (p.Proto != unix.IPPROTO_TCP || p.TCPFlags&0x02 != 0) }
}

const webRequest = "GET / HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n"

// TestWaysPorts: where the policy says what another port carries, the name inside is looked at there as on 80 and 443.
// Without such a word, the address is all that counts.
func TestWaysPorts(t *testing.T) {
	shared, plain := netip.MustParseAddr("45.30.61.1"), netip.MustParseAddr("45.30.61.2")
	g, _ := carrying(t, "tls.test:8443 tls\nweb.test:8080 http\nplain.test:8443\n",
		map[string]netip.Addr{"tls.test": shared, "web.test": shared, "plain.test": plain}, 8443, 8080)
	for _, try := range []struct {
		to   string
		send string
		ok   bool
	}{
		{rig.Target(shared.String(), 8443), string(hello(t, "tls.test", nil)), true},
		{rig.Target(shared.String(), 8443), string(hello(t, "evil.test", nil)), false},
		{rig.Target(shared.String(), 8443), string(hello(t, "web.test", nil)), false}, // on another port only
		{rig.Target(shared.String(), 8443), strings.Replace(webRequest, "web.test", "tls.test", 1), false},
		{rig.Target(shared.String(), 8443), "\x00\x01anything else\r\n", false},
		{rig.Target(shared.String(), 8080), strings.Replace(webRequest, "web.test", "web.test:8080", 1), true},
		{rig.Target(shared.String(), 8080), strings.Replace(webRequest, "web.test", "evil.test:8080", 1), false},
		{rig.Target(shared.String(), 8080), string(hello(t, "web.test", nil)), false},
		{rig.Target(plain.String(), 8443), string(hello(t, "evil.test", nil)), true},
		{rig.Target(plain.String(), 8443), "\x00\x01anything else\r\n", true},
	} {
		args := g.bytes(try.to, []byte(try.send), "-timeout", "20s")
		if try.ok {
			g.Works(args...)
			continue
		}
		g.Box.ForgetPackets()
		if p := g.Poke(args...); p.OK && !strings.HasPrefix(fmt.Sprint(p.Detail["received"]), "HTTP/1.1 403 ") {
			t.Errorf("got through: %v: %s", args, p)
		}
		g.Traceless(begun(shared), args) // the end of the connection before may still leave
	}
	g.Audited("what the port carries", func(e rig.Event) bool {
		return e.Kind == "connect" && e.Verdict == "deny" && e.IP == shared.String() && e.Name == "evil.test" && strings.Contains(e.Reason, unlisted)
	})
}

// TestWaysDirect: what the policy calls direct goes out past the gate, whatever it carries, until a name that is looked
// into has the same address. What began before goes on, and ends with its own name.
func TestWaysDirect(t *testing.T) {
	a := netip.MustParseAddr("45.30.62.1")
	addrs := map[string]netip.Addr{"bulk.test": a}
	g, taps := carrying(t, "bulk.test direct\n", addrs, 443)
	g.Lab.DNS.SetAddrs("near.test", a.String())
	to, noise := rig.Target(a.String(), 443), []byte("\x00\x01neither TLS nor a name\r\n")
	g.Works(g.bytes(to, noise)...)
	ap := netip.AddrPortFrom(a, 443)
	flow := g.AsAgent(g.Box, "tcp", "-hold", "10m", to)
	moves := func(when string) {
		t.Helper()
		before := strings.Count(taps[ap].String(), ".")
		if !rig.Eventually(lab.Patience, func() bool { return strings.Count(taps[ap].String(), ".") > before+10 }) {
			t.Errorf("%s: what had begun as direct is still: %s%s", when, flow.Stdout(), flow.Stderr())
		}
	}
	moves("at first")
	if r := g.SetPolicy("bulk.test direct\nnear.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	g.Works("resolve", "near.test")
	reset(t, g.Blocked(g.bytes(to, noise)...))
	reset(t, g.Blocked(g.bytes(to, hello(t, "evil.test", nil))...))
	for _, name := range []string{"near.test", "bulk.test"} {
		g.Works(g.bytes(to, hello(t, name, nil))...)
	}
	moves("beside a name that is looked into")
	// The guard has the way of both, and the agent has none but by the guard.
	if r := g.SetPolicy("near.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	select {
	case <-flow.Done():
	case <-time.After(lab.Patience):
		t.Error("what had begun as direct outlives its name")
	}
	reset(t, g.Blocked(g.bytes(to, hello(t, "bulk.test", nil))...))
	g.Works(g.bytes(to, hello(t, "near.test", nil))...)
	if r := g.SetPolicy("bulk.test direct\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	g.Works("resolve", "bulk.test")
	g.Works(g.bytes(to, noise)...)
	if s, code := g.Status(); code != 0 {
		t.Errorf("status: %v", s)
	}
}

// TestWaysInspected: to the addresses of an inspected name nobody goes out but the broker: not the agent, nor root, nor
// hostile code in the guard's place.
func TestWaysInspected(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	addrs := []string{"45.30.63.1", "2a0f:30::63"}
	l.DNS.SetAddrs("seen.test", addrs...)
	w := rig.ConfineIn(t, l, "ok.test\nseen.test GET /x\n", lab.BoxOptions{Files: []lab.File{{Path: rig.Bundle, Data: l.CA.PEM}}})
	b := &rig.Brokered{World: w}
	b.Works("resolve", "seen.test")
	guard, broker := b.Guard(), b.Process()
	for _, a := range addrs {
		for _, who := range []rig.Inmate{{Uid: 0}, {Uid: lab.AgentUID, Gid: lab.AgentUID}, {Uid: lab.AgentUID, Gid: guard.Gid}, {Uid: guard.Uid, Gid: lab.AgentUID}} {
			// It is connected to the gate, and hears of nobody else.
			if p := b.Turned(who, "tcp", "-hex", hex.EncodeToString(hello(t, "evil.test", nil)), "-timeout", "20s", rig.Target(a, 443)); p.OK {
				t.Errorf("uid %d, gid %d: %s", who.Uid, who.Gid, p)
			}
		}
		b.Box.ForgetPackets()
		for _, port := range []uint16{80, 443, 8443} {
			if p := b.Turned(guard, "tcp", "-send", "leak", "-timeout", "2s", rig.Target(a, port)); p.OK {
				t.Errorf("in the guard's place: %s", p)
			}
			b.Turned(guard, "udp", "-send", "leak", "-noreply", rig.Target(a, port))
		}
		b.Sealed(begun(netip.MustParseAddr(a)))
		if p := b.Turned(broker, "-patient", "tcp", rig.Target(a, 443)); !p.OK {
			t.Errorf("proves nothing: the broker does not reach %s: %s", a, p)
		}
		if p := b.Turned(broker, "tcp", rig.Target(a, 80)); p.OK {
			t.Errorf("in the broker's place, on another port: %s", p)
		}
	}
	ok4, _ := rig.Named("ok.test")
	if p := b.Turned(guard, "tcp", rig.Target(ok4.String(), 443)); !p.OK {
		t.Errorf("proves nothing: the guard does not reach %v: %s", ok4, p)
	}
	// With the name's entry, all of it goes; and back without its words, it is a name like any other.
	for list, reach := range map[string]bool{"ok.test\n": false, "ok.test\nseen.test\n": true} {
		if r := w.SetPolicy(list); r.Code != 0 {
			t.Fatalf("reload: %s", r)
		}
		if reach {
			b.Works("resolve", "seen.test")
		}
		for _, a := range addrs {
			if p := b.Turned(guard, "tcp", rig.Target(a, 443)); p.OK != reach {
				t.Errorf("with %q, in the guard's place: %s", list, p)
			}
			if p := b.Turned(broker, "tcp", "-send", "leak", rig.Target(a, 443)); p.OK { // it may be led to the gate
				t.Errorf("with %q, in the broker's place: %s", list, p)
			}
		}
	}
}
