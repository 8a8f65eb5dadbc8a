package firewall

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKernelOrphans: what a socket of the agent's has left to be sent ends with its lease, also where the guard or the
// broker is busy at the same address.
func TestKernelOrphans(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withGate(t, l)
	f := open(t, Options{})
	if !f.Zones {
		t.Log("without zones, nothing tells what the guard has left")
		return
	}
	apply(t, f, c)
	const much = 4 << 20
	for what, n := range map[string]struct {
		uid    int
		leases []Holder
	}{"guard": {guardUID, []Holder{Gated}}, "broker": {brokerUID, []Holder{Broker}}, "broker for an inspected name": {brokerUID, []Holder{Broker, Inspected}}} {
		ap := at(far4, 9600)
		must(t, f.Lease(ctx, leasedTo(Agent, tcpLeases(9600, far4)...)))
		left := make(chan net.Conn, 2)
		var lis net.Listener
		l.onPeer(func() {
			var err error
			lis, err = net.Listen("tcp", ap.String())
			must(t, err)
		})
		go func() {
			for {
				conn, err := lis.Accept()
				if err != nil {
					return
				}
				left <- conn
			}
		}()
		as(agentUID, func() {
			conn, err := net.Dial("tcp", ap.String())
			must(t, err)
			must(t, conn.(*net.TCPConn).SetWriteBuffer(2*much))
			_, err = conn.Write(make([]byte, much))
			must(t, err)
			must(t, conn.Close())
		})
		orphan := <-left
		for _, h := range n.leases {
			must(t, f.Lease(ctx, leasedTo(h, tcpLeases(9600, far4)...)))
		}
		var busy net.Conn
		as(n.uid, func() {
			var err error
			busy, err = net.Dial("tcp", ap.String())
			must(t, err)
		})
		other := <-left
		talk := func() {
			t.Helper()
			must(t, busy.SetDeadline(time.Now().Add(answerTime)))
			_, err := busy.Write([]byte("x"))
			must(t, err)
			_, err = io.ReadFull(other, make([]byte, 1))
			must(t, err)
			_, err = other.Write([]byte("y"))
			must(t, err)
			_, err = io.ReadFull(busy, make([]byte, 1))
			must(t, err)
		}
		talk()
		must(t, f.Revoke(ctx, []Element{leasedTo(Agent, tcpLeases(9600, far4)...)[0].Element}))
		orphan.SetReadDeadline(time.Now().Add(2 * time.Second))
		got, _ := io.Copy(io.Discard, orphan)
		if t.Logf("%s: %d bytes were on their way before", what, got); got > much/2 {
			t.Errorf("%s: %d bytes of %d arrived", what, got, much)
		}
		talk()
		for _, conn := range []io.Closer{orphan, other, busy, lis} {
			conn.Close()
		}
		must(t, f.RevokeAll(ctx))
	}
}

// TestKernelEra: a flow of another era ends, though its address is open again, and others to that address go on.
func TestKernelEra(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withGate(t, l)
	f := open(t, Options{})
	for i, ap := range []netip.AddrPort{at(far4, 443), at(far6, 443)} {
		c.Era = uint32(10*i + 1)
		apply(t, f, c)
		lease := leasedTo(Agent, tcpLeases(443, ap.Addr())...)
		must(t, f.Lease(ctx, lease))
		idle := dialAs(t, ap, agentUID)
		alive := func(conn net.Conn, want bool, what string) {
			t.Helper()
			if got, err := pingFor(time.Second, conn, "still"); (err == nil && got == "still") != want {
				t.Errorf("%v: %s: %q, %v", ap, what, got, err)
			}
		}
		alive(idle, true, "at first")
		again := c
		again.Allow = append(again.Allow, Entry{Prefix: single(netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", i))), Proto: unix.IPPROTO_TCP, Port: 22})
		apply(t, f, again)
		alive(idle, true, "by another policy of the same era")
		must(t, f.RevokeAll(ctx))
		c.Era++
		apply(t, f, c)
		c.Era++
		apply(t, f, c)
		must(t, f.Lease(ctx, lease))
		next := dialAs(t, ap, agentUID)
		alive(next, true, "of this era")
		alive(idle, false, "of another era")
		alive(next, true, "beside it")
		must(t, f.Verify(ctx))
		must(t, f.RevokeAll(ctx))
	}
}
