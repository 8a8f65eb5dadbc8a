package firewall

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is granted ends by itself, what is under way included; and its end is no
// difference to the plan.
func TestKernelGranted(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	f := open(t, Options{})
	lasting := Config{Allow: []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}, {Prefix: single(other6), Proto: unix.IPPROTO_TCP, Port: 443}}}
	c := lasting
	until := time.Now().Add(8 * time.Second)
	c.Granted = []Grant{{Entry: Entry{Prefix: netip.PrefixFrom(far4, 28), Proto: unix.IPPROTO_TCP, Port: 443}, Until: until}, {Entry: Entry{Prefix: single(far6), Proto: unix.IPPROTO_TCP, Port: 443}, Until: until},
		{Entry: Entry{Prefix: netip.PrefixFrom(far4, 30), Proto: unix.IPPROTO_TCP, Port: 443}, Until: until.Add(-2 * time.Second)}}
	apply(t, f, c)
	must(t, f.Verify(ctx))
	var conns []net.Conn
	for _, a := range []netip.Addr{far4, far6, other4} {
		conn, err := net.Dial("tcp", at(a, 443).String())
		must(t, err)
		defer conn.Close()
		if _, err := ping(conn, "before"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	// The same again neither prolongs it nor ends it.
	apply(t, f, c)
	eventually(t, "the end of what was granted", func() bool {
		must(t, f.Verify(ctx))
		return time.Now().After(until) && reach("tcp", at(far4, 443), agentUID) != nil && reach("tcp", at(far6, 443), agentUID) != nil
	})
	for i, conn := range conns[:2] {
		if got, err := ping(conn, "after"); err == nil {
			t.Errorf("connection %d goes on: %q", i, got)
		}
	}
	if _, err := ping(conns[2], "lasting"); err != nil {
		t.Errorf("what has no end: %v", err)
	}
	l.nowhere("after")
	must(t, f.Verify(ctx))
	must(t, f.Repair(ctx))
	must(t, f.Verify(ctx))
	refused(t, "tcp", at(far4, 443), agentUID)
	apply(t, f, lasting)
	must(t, f.Verify(ctx))
}
