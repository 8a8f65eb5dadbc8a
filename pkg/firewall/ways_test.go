package firewall

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// withGate is a plan with a gate and a broker, before servers on 443, 8443 and 9443.
func withGate(t *testing.T, l *lab) Config {
	t.Helper()
	for _, port := range []uint16{443, 8443, 9443} {
		l.serve(port)
	}
	for _, a := range []netip.Addr{own4, own6} {
		echo(t, at(a, 41443), "gate ")
	}
	return Config{
		BrokerUID: brokerUID, BrokerGID: brokerGID, BrokerPort4: brokerPort, BrokerPort6: brokerPort,
		GatePort4: 41443, GatePort6: 41443, DropGroup: group,
	}
}

func toGate(t *testing.T, ap netip.AddrPort, uid int) {
	t.Helper()
	if got, err := ask("tcp", ap, uid, "hello"); got != "gate hello" {
		t.Errorf("uid %d, %v: got %q, %v; want the gate", uid, ap, got, err)
	}
}

// dialAs connects as a uid, and sends and gets something.
func dialAs(t *testing.T, ap netip.AddrPort, uid int) net.Conn {
	t.Helper()
	var c net.Conn
	as(uid, func() {
		var err error
		c, err = net.Dial("tcp", ap.String())
		must(t, err)
	})
	t.Cleanup(func() { c.Close() })
	if got, err := ping(c, "begun"); err != nil || got != "begun" {
		t.Fatalf("uid %d, %v: %q, %v", uid, ap, got, err)
	}
	return c
}

// TestKernelInspected: who may go out depends on how an element is leased, whatever its port: to an inspected one nobody
// but the broker, by its own lease.
func TestKernelInspected(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withGate(t, l)
	f := open(t, Options{})
	zones := f.Zones
	for _, mode := range []struct{ observe, unzoned bool }{{}, {observe: true}, {unzoned: true}} {
		c.Observe, f.Zones = mode.observe, zones && !mode.unzoned
		apply(t, f, c)
		t.Run(fmt.Sprintf("observe %v, zones %v", c.Observe, f.Zones), func(t *testing.T) {
			must(t, f.RevokeAll(ctx))
			must(t, f.Lease(ctx, leasedTo(Inspected, tcpLeases(443, far4, far6)...)))
			must(t, f.Lease(ctx, leasedTo(Gated, tcpLeases(8443, far4, far6)...)))
			must(t, f.Lease(ctx, tcpLeases(9443, far4, far6)))
			for _, a := range []netip.Addr{far4, far6} {
				for _, who := range []int{0, agentUID, impostor, namesake} {
					toGate(t, at(a, 443), who)
					toGate(t, at(a, 8443), who)
					reached(t, "tcp", at(a, 9443), who)
				}
				refused(t, "tcp", at(a, 443), guardUID)
				refused(t, "tcp", at(a, 443), brokerUID)
				for _, port := range []uint16{8443, 9443} {
					reached(t, "tcp", at(a, port), guardUID)
					refused(t, "tcp", at(a, port), brokerUID)
				}
				if got, err := ask("tcp", at(a, 443), guardUID, "x"); err == nil {
					t.Errorf("the guard got %q at %v", got, a)
				}
			}
			must(t, f.Lease(ctx, forBroker(tcpLeases(443, far4, far6)...)))
			for _, a := range []netip.Addr{far4, far6} {
				reached(t, "tcp", at(a, 443), brokerUID)
				refused(t, "tcp", at(a, 443), guardUID)
				toGate(t, at(a, 443), agentUID)
				if mode.observe {
					continue
				}
				// What is left of a flow of the broker's is no way out either.
				for _, who := range []int{agentUID, guardUID} {
					port := leftFlow(t, at(a, 443), brokerUID)
					if got := askFrom(t, "tcp", port, at(a, 443), who, "by "+mark(who)); got == "by "+mark(who) {
						t.Errorf("%d, from a port of the broker's: reached %v", who, a)
					}
				}
			}
			must(t, f.Verify(ctx))
		})
	}
	for _, h := range []Holder{Gated, Inspected} {
		if err := f.Lease(ctx, leasedTo(h, leaseOf(far4, unix.IPPROTO_UDP, 443, time.Minute))); err == nil {
			t.Errorf("udp is leased to the %s, where nothing would be redirected", h)
		}
	}
}

// TestKernelDirect: what is open past the gate is redirected from the moment on when a name that is looked into has the
// same address. What began before goes on, until it is revoked by itself.
func TestKernelDirect(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withGate(t, l)
	f := open(t, Options{})
	apply(t, f, c)
	for _, ap := range []netip.AddrPort{at(far4, 443), at(far6, 443)} {
		lease := func(h Holder) []Lease { return leasedTo(h, tcpLeases(443, ap.Addr())...) }
		revoke := func(h Holder) { t.Helper(); must(t, f.Revoke(ctx, []Element{lease(h)[0].Element})) }
		alive := func(c net.Conn, want bool, what string) {
			t.Helper()
			if got, err := pingFor(time.Second, c, "still"); (err == nil && got == "still") != want {
				t.Errorf("%v: %s: %q, %v", ap, what, got, err)
			}
		}
		must(t, f.Lease(ctx, lease(Agent)))
		direct := dialAs(t, ap, agentUID)
		must(t, f.Lease(ctx, lease(Gated)))
		toGate(t, ap, agentUID)
		alive(direct, true, "a direct flow ends when a gated name comes")
		gated := dialAs(t, ap, guardUID)
		if f.Zones {
			port := leftFlow(t, ap, guardUID)
			if got := askFrom(t, "tcp", port, ap, agentUID, "left"); got != "gate left" {
				t.Errorf("%v: from the port of a flow of the guard's: %q", ap, got)
			}
		}
		revoke(Gated)
		reached(t, "tcp", ap, agentUID)
		alive(direct, true, "a direct flow ends with a gated name")

		// Nobody goes out for an inspected name, but the guard for the other.
		must(t, f.Lease(ctx, lease(Inspected)))
		toGate(t, ap, agentUID)
		reached(t, "tcp", ap, guardUID)
		alive(direct, true, "a direct flow ends when an inspected name comes")
		revoke(Agent)
		alive(direct, false, "a direct flow outlives its name")
		alive(gated, false, "the guard's does")
		refused(t, "tcp", ap, guardUID)
		toGate(t, ap, agentUID)
		revoke(Inspected)
		refused(t, "tcp", ap, agentUID)
	}
	// Without a listener, a name that is looked into closes the address for direct ones, too.
	c.GatePort4, c.GatePort6 = 0, 0
	apply(t, f, c)
	for _, h := range []Holder{Gated, Inspected} {
		must(t, f.Lease(ctx, tcpLeases(9443, far4, far6)))
		must(t, f.Lease(ctx, leasedTo(h, tcpLeases(9443, far4, far6)...)))
		refused(t, "tcp", at(far4, 9443), agentUID)
		refused(t, "tcp", at(far6, 9443), agentUID)
		must(t, f.RevokeAll(ctx))
	}
	must(t, f.Verify(ctx))
}

// bookkeeper is a backend that has leases and nothing else, as inside gVisor.
type bookkeeper struct {
	backend
	leases []Lease
}

func (b bookkeeper) Held(s plan.Set, each func(Lease)) error {
	for _, l := range b.leases {
		if s.Name == plan.FamilyOf(l.Addr).Leases(l.For).Name {
			each(l)
		}
	}
	return nil
}

// TestHeldReduced: a reduced plan has no sets, and the leases of whoever goes out are told all the same.
func TestHeldReduced(t *testing.T) {
	p, err := NewPlan(Config{GuardUID: 1, GuardGID: 1, Reduced: true})
	must(t, err)
	b := bookkeeper{leases: append(leasedTo(Gated, tcpLeases(443, far4, far6)...), tcpLeases(22, far4)...)}
	f := &Firewall{be: b, last: &p}
	if ls, err := f.held(plan.LeaseSets(), anyLease); err != nil || len(ls) != 3 {
		t.Errorf("held: %v, %v", ls, err)
	}
}

// TestKernelLeftover: where there are no zones, what the guard leaves to be sent arrives as a part of its flow, to the last
// byte.
func TestKernelLeftover(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	c := withGate(t, l)
	f := open(t, Options{})
	f.Zones = false
	apply(t, f, c)
	const much = 4 << 20
	for port, h := range map[uint16]Holder{9500: Gated, 9501: Agent} {
		must(t, f.Lease(context.Background(), leasedTo(h, tcpLeases(port, far4)...)))
		got := slowReader(t, l, at(far4, port))
		as(guardUID, func() {
			c, err := net.Dial("tcp", at(far4, port).String())
			must(t, err)
			must(t, c.(*net.TCPConn).SetWriteBuffer(2*much))
			_, err = c.Write(make([]byte, much))
			must(t, err)
			must(t, c.Close())
		})
		if n := <-got; n != much {
			t.Errorf("leased to the %s: %d bytes arrived of %d, or no end", h, n, much)
		}
	}
}
