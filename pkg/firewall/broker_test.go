package firewall

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	labnet "github.com/agent-init/agent-init/internal/netns"
)

const (
	brokerUID  = 991
	brokerGID  = 48212
	brokerPort = 41099
)

var own4, own6 = netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()

// withBroker is a guard, a gate, and a broker, with servers of the agent's beside them.
func withBroker(t *testing.T, l *lab) Config {
	t.Helper()
	for _, port := range []uint16{53, 80, 443, 853, 8443} {
		l.serve(port)
	}
	for _, a := range []netip.Addr{own4, own6} {
		echo(t, at(a, 41053), "guard ")
		echo(t, at(a, 41443), "gate ")
		echo(t, at(a, 3000), "server ")
		answerAsBroker(t, at(a, brokerPort))
	}
	echo(t, at(near4, 3000), "server ")
	return Config{
		BrokerUID: brokerUID, BrokerGID: brokerGID, BrokerPort4: brokerPort, BrokerPort6: brokerPort, DropGroup: group,
		DNSPort4: 41053, DNSPort6: 41053, GatePort4: 41443, GatePort6: 41443, Gated: []uint16{80, 443},
		Upstreams: []netip.AddrPort{at(other4, 53), at(other6, 53), at(other4, 853), at(other6, 853)},
	}
}

// answerAsBroker has a socket that root made answered by the broker.
func answerAsBroker(t *testing.T, ap netip.AddrPort) {
	t.Helper()
	lis, err := net.Listen("tcp", ap.String())
	must(t, err)
	t.Cleanup(func() { lis.Close() })
	go func() {
		_ = labnet.OnThread(func() error {
			if err := become(brokerUID); err != nil {
				return err
			}
			for {
				c, err := lis.Accept()
				if err != nil {
					return err
				}
				buf := make([]byte, 2048)
				for {
					n, err := c.Read(buf)
					if err != nil {
						break
					}
					c.Write(append([]byte("broker "), buf[:n]...))
				}
				c.Close()
			}
		})
	}()
}

func forBroker(ls ...Lease) []Lease {
	for i := range ls {
		ls[i].For = Broker
	}
	return ls
}

func tcpLeases(port uint16, addrs ...netip.Addr) (out []Lease) {
	for _, a := range addrs {
		out = append(out, leaseOf(a, unix.IPPROTO_TCP, port, time.Minute))
	}
	return out
}

// TestKernelBroker: what runs as the broker reaches what is leased to it, and nothing else; and nobody else does.
func TestKernelBroker(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withBroker(t, l)
	c.Allow = []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 8443}, {Prefix: single(other6), Proto: unix.IPPROTO_TCP, Port: 8443}}
	c.BrokerDeny = []Entry{{Prefix: single(other4)}, {Prefix: single(other6)}}
	f := open(t, Options{})
	zones := f.Zones
	for _, mode := range []struct{ observe, anyAgent, unzoned bool }{{}, {anyAgent: true}, {observe: true}, {unzoned: true}} {
		c.Observe, c.AnyAgent, f.Zones = mode.observe, mode.anyAgent, zones && !mode.unzoned
		apply(t, f, c)
		must(t, f.Lease(ctx, forBroker(tcpLeases(443, far4, far6, other4, other6)...))) // the latter are denied
		must(t, f.Lease(ctx, forBroker(tcpLeases(53, far4, far6)...)))                  // no port of an API's
		must(t, f.Lease(ctx, forBroker(tcpLeases(3000, near4)...)))                     // where the agent may listen
		must(t, f.Lease(ctx, forBroker(leaseOf(far4, unix.IPPROTO_UDP, 443, time.Minute), leaseOf(far6, unix.IPPROTO_UDP, 443, time.Minute))))
		must(t, f.Lease(ctx, tcpLeases(80, far4, far6)))                                // the agent's
		must(t, f.Verify(ctx))
		t.Run(fmt.Sprintf("observe %v, any agent %v, zones %v", c.Observe, c.AnyAgent, f.Zones), func(t *testing.T) {
			hostileBroker(t, l)
			hostileAgents(t, l, c.Observe)
		})
		must(t, f.Verify(ctx))
	}
	// A plan without a broker has none of its sets, and what was leased to it is of no use.
	c.BrokerUID, c.BrokerGID, c.BrokerPort4, c.BrokerPort6, c.BrokerDeny, c.Observe, c.AnyAgent, f.Zones = 0, 0, 0, 0, nil, false, false, zones
	apply(t, f, c)
	must(t, f.Verify(ctx))
	refused(t, "tcp", at(far4, 443), brokerUID)
	if err := f.Lease(ctx, forBroker(tcpLeases(443, far4)...)); err == nil {
		t.Error("leased to a broker that is not there")
	}
	if ls, err := f.Leased(ctx); err != nil || slices.ContainsFunc(ls, func(l Lease) bool { return l.For == Broker }) {
		t.Errorf("leased: %v, %v", ls, err)
	}
}

func hostileBroker(t *testing.T, l *lab) {
	for _, a := range []netip.Addr{far4, far6} {
		reached(t, "tcp", at(a, 443), brokerUID)
		l.forget()
		refused(t, "udp", at(a, 443), brokerUID)
		for _, network := range []string{"tcp", "udp"} {
			refused(t, network, at(a, 8443), brokerUID) // another port
			refused(t, network, at(a, 80), brokerUID)   // the agent's lease
			refused(t, network, at(a, 53), brokerUID)   // no DNS, not even the guard's
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		for _, a := range []netip.Addr{other4, other6} {
			for _, port := range []uint16{53, 80, 443, 853, 8443} { // others, the guard's servers, what everybody may reach
				refused(t, network, at(a, port), brokerUID)
			}
		}
		for _, a := range []netip.Addr{own4, own6} { // the guard, the gate, the agent's servers, and itself
			for _, port := range []uint16{41053, 41443, 3000, brokerPort} {
				refused(t, network, at(a, port), brokerUID)
			}
		}
		for _, ap := range []string{"192.0.2.2:3000", "127.0.0.11:53", "127.0.0.2:53", "169.254.169.254:80", "[fd00:ec2::254]:80", "[ff02::fb]:5353"} {
			refused(t, network, netip.MustParseAddrPort(ap), brokerUID)
		}
	}
	// From elsewhere, on loopback too, as if somebody had asked.
	for _, way := range [][2]netip.AddrPort{
		{at(other6, 443), at(far6, 443)}, {at(other6, 443), at(near6, 7000)}, {at(own6, brokerPort), at(own6, 3000)}, {at(own4, 41098), at(own4, 3000)},
	} {
		if err := sendFromAs(brokerUID, way[0], way[1], mark(brokerUID)); err == nil {
			t.Errorf("sent from %v to %v", way[0], way[1])
		}
	}
	l.nowhere(mark(brokerUID))
	for _, a := range []netip.Addr{own4, own6} {
		for _, who := range []int{0, agentUID, guardUID} {
			if got, err := ask("tcp", at(a, brokerPort), who, "hello"); got != "broker hello" {
				t.Errorf("uid %d asks the broker at %v: %q, %v", who, a, got, err)
			}
		}
	}
}

func hostileAgents(t *testing.T, l *lab, observe bool) {
	l.forget()
	for _, who := range []int{0, agentUID, guardUID, impostor, brokerImpostor, brokerNamesake} {
		for _, a := range []netip.Addr{far4, far6} {
			if observe {
				reached(t, "tcp", at(a, 443), who)
				continue
			}
			refused(t, "tcp", at(a, 443), who)
			refused(t, "udp", at(a, 443), who)
			port := brokersFlow(t, at(a, 443)) // the kernel believes that it lives
			if got := askFrom(t, "tcp", port, at(a, 443), who, "by "+mark(who)); got == "by "+mark(who) {
				t.Errorf("%d, from a port of the broker's: reached %v", who, a)
			}
		}
	}
	if !observe {
		l.nowhere("by hello")
		for _, who := range []int{0, agentUID, guardUID} {
			l.nowhere(mark(who))
		}
	}
	for _, a := range []netip.Addr{far4, far6} {
		if got, err := ask("tcp", at(a, 80), agentUID, "hello"); got != "gate hello" {
			t.Errorf("%v: what is leased to the agent: %q, %v", a, got, err)
		}
	}
}

// brokersFlow leaves a flow of the broker's, and returns its port.
func brokersFlow(t *testing.T, dst netip.AddrPort) int {
	t.Helper()
	for port := 20000; port < 20100; port++ {
		if got := askFrom(t, "tcp", port, dst, brokerUID, "flow"); got == "flow" {
			return port
		}
	}
	t.Fatalf("the broker does not reach %v", dst)
	return 0
}

// TestKernelBrokerShares: an address that is leased to both is each one's by itself: on the way out, for what is under
// way, and at the end.
func TestKernelBrokerShares(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withBroker(t, l)
	f := open(t, Options{})
	apply(t, f, c)
	element := func(port uint16, h Holder) Element {
		return Element{Addr: far4, Proto: unix.IPPROTO_TCP, Port: port, For: h}
	}
	for _, port := range []uint16{443, 8443} {
		must(t, f.Lease(ctx, append(forBroker(tcpLeases(port, far4, far6)...), tcpLeases(port, far4, far6)...)))
	}
	for _, a := range []netip.Addr{far4, far6} {
		if got, err := ask("tcp", at(a, 443), agentUID, "hello"); got != "gate hello" {
			t.Errorf("%v: the agent is not led to the gate: %q, %v", a, got, err)
		}
		reached(t, "tcp", at(a, 443), brokerUID)
		// From one port, one after the other: what is left of either is in nobody's way.
		if f.Zones {
			for i, who := range []int{agentUID, brokerUID, agentUID} {
				want := map[int]string{agentUID: "gate turn", brokerUID: "turn"}[who]
				if got := askFrom(t, "tcp", 7100, at(a, 443), who, "turn"); got != want {
					t.Errorf("%v, turn %d: %d has %q", a, i, who, got)
				}
			}
		}
	}
	dial := func(who int) net.Conn {
		var conn net.Conn
		as(who, func() {
			var err error
			conn, err = net.Dial("tcp", at(far4, 8443).String())
			must(t, err)
		})
		t.Cleanup(func() { conn.Close() })
		_, err := ping(conn, "begun")
		must(t, err)
		return conn
	}
	mine, its := dial(agentUID), dial(brokerUID)
	for _, h := range []Holder{Agent, Broker} {
		if used := inUse(t, f); !contains(used, element(8443, h)) {
			t.Errorf("not in use by the %s: %v", h, used)
		}
	}
	must(t, f.Revoke(ctx, []Element{element(8443, Agent)}))
	if got, err := pingFor(time.Second, mine, "after"); err == nil {
		t.Errorf("the agent's flow lives on: %q", got)
	}
	if _, err := ping(its, "after"); err != nil {
		t.Errorf("the broker's ended with the agent's: %v", err)
	}
	must(t, f.Lease(ctx, tcpLeases(8443, far4)))
	mine = dial(agentUID)
	must(t, f.Revoke(ctx, []Element{element(8443, Broker)}))
	if got, err := pingFor(time.Second, its, "after"); err == nil {
		t.Errorf("the broker's flow lives on: %q", got)
	}
	if _, err := ping(mine, "after"); err != nil {
		t.Errorf("the agent's ended with the broker's: %v", err)
	}
	must(t, f.RevokeAll(ctx))
	if ls, err := f.Leased(ctx); err != nil || len(ls) > 0 {
		t.Errorf("after all was revoked: %v, %v", ls, err)
	}
	must(t, f.Verify(ctx))
}

// TestKernelBrokerGoesOn: what the broker has begun outlives its lease, and what it leaves to be sent arrives, to the
// last byte and the end.
func TestKernelBrokerGoesOn(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withBroker(t, l)
	c.BrokerAllow = []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 9443}, {Prefix: single(other6), Proto: unix.IPPROTO_TCP, Port: 9443}}
	c.Deny = []Entry{{Prefix: single(other4)}, {Prefix: single(other6)}} // to others
	f := open(t, Options{})
	apply(t, f, c)
	must(t, f.Lease(ctx, forBroker(leaseOf(far4, unix.IPPROTO_TCP, 443, time.Second))))
	var conn net.Conn
	as(brokerUID, func() {
		var err error
		conn, err = net.Dial("tcp", at(far4, 443).String())
		must(t, err)
	})
	defer conn.Close()
	_, err := ping(conn, "begun")
	must(t, err)
	eventually(t, "the end of the lease", func() bool { return reach("tcp", at(far4, 443), brokerUID) != nil })
	_, err = ping(conn, "still")
	must(t, err)

	const much = 4 << 20
	must(t, f.Lease(ctx, forBroker(tcpLeases(9443, far4, far6)...)))
	must(t, f.Lease(ctx, tcpLeases(9444, far4)))
	must(t, f.Lease(ctx, forBroker(tcpLeases(9444, far4)...))) // which the agent has too
	for _, way := range []struct {
		who int
		to  netip.AddrPort
	}{{brokerUID, at(far4, 9443)}, {brokerUID, at(far6, 9443)}, {brokerUID, at(other4, 9443)}, {brokerUID, at(other6, 9443)}, {agentUID, at(far4, 9444)}} {
		got := slowReader(t, l, way.to)
		as(way.who, func() {
			c, err := net.Dial("tcp", way.to.String())
			must(t, err)
			must(t, c.(*net.TCPConn).SetWriteBuffer(2*much))
			_, err = c.Write(make([]byte, much))
			must(t, err)
			must(t, c.Close())
		})
		if n := <-got; n != much {
			t.Errorf("%d to %v: %d bytes arrived of %d, or no end", way.who, way.to, n, much)
		}
	}
	must(t, f.Verify(ctx))
}

// TestKernelBrokerReload: other rules, for others and with or without a broker, end no flow of the guard's or the broker's.
func TestKernelBrokerReload(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	with := withBroker(t, l)
	without := with
	without.BrokerUID, without.BrokerGID, without.BrokerPort4, without.BrokerPort6 = 0, 0, 0, 0
	f := open(t, Options{})
	keptOpen := func(who int, change func(round int)) {
		t.Helper()
		var c net.Conn
		as(who, func() {
			var err error
			c, err = net.Dial("tcp", at(far4, 8443).String())
			must(t, err)
		})
		defer c.Close()
		stop, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				if _, err := ping(c, "x"); err != nil {
					ended <- err
					return
				}
			}
		}()
		for round := range 10 {
			change(round)
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("a flow of %d has ended: %v", who, err)
		}
		must(t, f.Verify(ctx))
	}
	others := func(c Config, round int) Config {
		c.Allow = []Entry{{Prefix: netip.PrefixFrom(other4, 24+round%8), Proto: unix.IPPROTO_TCP, Port: 80}}
		c.BrokerAllow = []Entry{{Prefix: netip.PrefixFrom(other4, 24+round%8), Proto: unix.IPPROTO_TCP, Port: 9443}}
		return c
	}
	apply(t, f, with)
	must(t, f.Lease(ctx, append(tcpLeases(8443, far4), forBroker(tcpLeases(8443, far4)...)...)))
	keptOpen(brokerUID, func(round int) { apply(t, f, others(with, round)) })
	keptOpen(guardUID, func(round int) { apply(t, f, others(with, round)) })
	keptOpen(guardUID, func(round int) {
		if round%2 == 0 {
			apply(t, f, without)
		} else {
			apply(t, f, others(with, round))
		}
	})
}

// slowReader takes a connection at the peer's, reads once its other end is closed, and tells how much came before the
// end; -1 if that never came.
func slowReader(t *testing.T, l *lab, ap netip.AddrPort) <-chan int64 {
	t.Helper()
	var lis net.Listener
	l.onPeer(func() {
		var err error
		lc := net.ListenConfig{}
		lis, err = lc.Listen(context.Background(), "tcp", ap.String())
		must(t, err)
	})
	got := make(chan int64, 1)
	go func() {
		defer lis.Close()
		c, err := lis.Accept()
		if err != nil {
			got <- -1
			return
		}
		defer c.Close()
		time.Sleep(200 * time.Millisecond) // while its writer fills what it may, and goes
		c.SetReadDeadline(time.Now().Add(answerTime))
		n, err := io.Copy(io.Discard, c)
		if err != nil {
			n = -1
		}
		got <- n
	}()
	return got
}

// A change of a broker's sets is seen, and mended.
func TestKernelBrokerTamper(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withBroker(t, l)
	f := open(t, Options{})
	apply(t, f, c)
	changed := c
	changed.BrokerGID++
	other := open(t, Options{})
	apply(t, other, changed)
	if err := f.Verify(ctx); err == nil {
		t.Error("rules for another group are not seen")
	}
	must(t, f.Repair(ctx))
	must(t, f.Verify(ctx))
	foreign := Element{Addr: other4, Proto: unix.IPPROTO_TCP, Port: 443, For: Broker}
	must(t, other.Lease(ctx, []Lease{{Element: foreign, TTL: time.Minute}}))
	ls, err := f.Leased(ctx)
	if err != nil || len(ls) != 1 || ls[0].Element != foreign {
		t.Errorf("leased: %v, %v", ls, err)
	}
	must(t, f.Retain(ctx, nil, func(e Element) bool { return e != foreign }))
	refused(t, "tcp", at(other4, 443), brokerUID)
}
