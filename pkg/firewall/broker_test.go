package firewall

import (
	"context"
	"fmt"
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
		DNSPort4: 41053, DNSPort6: 41053, GatePort4: 41443, GatePort6: 41443,
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

func forBroker(ls ...Lease) []Lease { return leasedTo(Broker, ls...) }

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
		must(t, f.Lease(ctx, leasedTo(Gated, tcpLeases(80, far4, far6)...))) // the agent's
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
	if ls, err := f.Leased(ctx, anyLease); err != nil || slices.ContainsFunc(ls, func(l Lease) bool { return l.For == Broker }) {
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
			port := leftFlow(t, at(a, 443), brokerUID) // the kernel believes that it lives
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

// leftFlow leaves a flow of a uid's, and returns its port.
func leftFlow(t *testing.T, dst netip.AddrPort, uid int) int {
	t.Helper()
	for port := 20000; port < 20100; port++ {
		if got := askFrom(t, "tcp", port, dst, uid, "flow"); got == "flow" {
			return port
		}
	}
	t.Fatalf("%d does not reach %v", uid, dst)
	return 0
}

// TestKernelBrokerNoDNS: the broker neither asks the engine's DNS nor any other in here, nor answers the guard in the place
// of one that is gone.
func TestKernelBrokerNoDNS(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	c := withBroker(t, l)
	engineAt, behind, gone := netip.MustParseAddrPort("127.0.0.11:53"), netip.MustParseAddrPort("127.0.0.11:40053"), at(near4, 5300)
	echo(t, behind, "engine ")
	engine(t, enginesVariant())
	c.Upstreams, c.Here = []netip.AddrPort{engineAt, gone}, []netip.AddrPort{gone}
	f := open(t, Options{})
	apply(t, f, c)
	if got, err := ask("udp", engineAt, guardUID, "q"); got != "engine q" {
		t.Errorf("the guard asks the engine: %q, %v", got, err)
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, ap := range []netip.AddrPort{engineAt, behind, gone} {
			refused(t, network, ap, brokerUID)
		}
	}
	for _, who := range []int{0, brokerUID} {
		stop := answerDNS(t, gone, who)
		got, err := askFor(time.Second, "udp", gone, guardUID, "q")
		if who == 0 && got != "forged q" {
			t.Errorf("proves nothing: nobody answers the guard: %v", err)
		}
		if who == brokerUID && err == nil {
			t.Errorf("the broker answers the guard: %q", got)
		}
		stop()
	}
}

// answerDNS has a server of a uid's at ap, over UDP.
func answerDNS(t *testing.T, ap netip.AddrPort, uid int) (stop func()) {
	t.Helper()
	opened, ended := make(chan *net.UDPConn, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = labnet.OnThread(func() error {
			err := become(uid)
			var c *net.UDPConn
			if err == nil {
				c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(ap))
			}
			opened <- c
			buf := make([]byte, 2048)
			for err == nil {
				var n int
				var from netip.AddrPort
				if n, from, err = c.ReadFromUDPAddrPort(buf); err == nil {
					_, _ = c.WriteToUDPAddrPort(append([]byte("forged "), buf[:n]...), from) // which may be refused
				}
			}
			return err
		})
	}()
	c := <-opened
	if c == nil {
		t.Fatalf("uid %d can't listen at %v", uid, ap)
	}
	return func() { c.Close(); <-ended }
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
	ls, err := f.Leased(ctx, anyLease)
	if err != nil || len(ls) != 1 || ls[0].Element != foreign {
		t.Errorf("leased: %v, %v", ls, err)
	}
	must(t, f.Retain(ctx, nil, func(e Element) bool { return e != foreign }))
	refused(t, "tcp", at(other4, 443), brokerUID)
}
