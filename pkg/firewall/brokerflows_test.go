package firewall

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
	for port, h := range map[uint16]Holder{443: Gated, 8443: Agent} {
		must(t, f.Lease(ctx, append(forBroker(tcpLeases(port, far4, far6)...), leasedTo(h, tcpLeases(port, far4, far6)...)...)))
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
	if ls, err := f.Leased(ctx, anyLease); err != nil || len(ls) > 0 {
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
		must(t, f.Lease(ctx, append(tcpLeases(8443, far4), forBroker(tcpLeases(8443, far4)...)...))) // the last ones may be over
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
					_, err := ping(c, "x")
					ended <- err
					return
				case <-time.After(time.Millisecond): // a change takes many times as long
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
