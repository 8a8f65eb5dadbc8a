package firewall

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	exporterUID = 993
	exporterGID = 48213
)

// longLeases outlive a test, however slow it is.
func longLeases(h Holder, port uint16, addrs ...netip.Addr) (out []Lease) {
	for _, a := range addrs {
		out = append(out, leaseOf(a, unix.IPPROTO_TCP, port, time.Hour))
	}
	return leasedTo(h, out...)
}

// TestKernelExporter: what runs as the exporter reaches what is leased to it, and nothing else; and nobody else does, the
// broker included. An address that both have is each one's by itself.
func TestKernelExporter(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	c := withBroker(t, l)
	c.ExporterUID, c.ExporterGID = exporterUID, exporterGID
	c.ExporterDeny = []Entry{{Prefix: single(other4)}, {Prefix: single(other6)}}
	f := open(t, Options{})
	apply(t, f, c)
	must(t, f.Lease(ctx, longLeases(Exporter, 8443, far4, far6, other4, other6))) // the latter are denied
	must(t, f.Lease(ctx, longLeases(Exporter, 53, far4)))                         // no port of a collector's
	must(t, f.Lease(ctx, longLeases(Broker, 443, far4, far6)))
	must(t, f.Lease(ctx, longLeases(Gated, 80, far4, far6)))
	must(t, f.Verify(ctx))
	hostileExporter(t, l)
	notTheExporter(t, l)
	sharedWithExporter(t, f)
	must(t, f.RevokeAll(ctx))
	must(t, f.Verify(ctx))
	// A plan without an exporter has none of its sets, and what was leased to it is of no use; with and without a broker.
	c.ExporterUID, c.ExporterGID, c.ExporterDeny = 0, 0, nil
	apply(t, f, c)
	must(t, f.Verify(ctx))
	refused(t, "tcp", at(far4, 8443), exporterUID)
	if err := f.Lease(ctx, longLeases(Exporter, 8443, far4)); err == nil {
		t.Error("leased to an exporter that is not there")
	}
	c.ExporterUID, c.ExporterGID = exporterUID, exporterGID
	c.BrokerUID, c.BrokerGID, c.BrokerPort4, c.BrokerPort6 = 0, 0, 0, 0
	c.ExporterAllow = []Entry{{Prefix: single(far6), Proto: unix.IPPROTO_TCP, Port: 8443}} // a collector by its address
	apply(t, f, c)
	must(t, f.Lease(ctx, longLeases(Exporter, 8443, far4)))
	must(t, f.Verify(ctx))
	for _, a := range []netip.Addr{far4, far6} {
		reached(t, "tcp", at(a, 8443), exporterUID)
		refused(t, "tcp", at(a, 8443), agentUID)
	}
}

func hostileExporter(t *testing.T, l *lab) {
	for _, a := range []netip.Addr{far4, far6} {
		reached(t, "tcp", at(a, 8443), exporterUID)
		l.forget()
		refused(t, "udp", at(a, 8443), exporterUID)
		for _, port := range []uint16{443, 80, 53} { // the broker's lease, the agent's, no DNS
			refused(t, "tcp", at(a, port), exporterUID)
		}
		refused(t, "udp", at(a, 53), exporterUID)
	}
	for _, a := range []netip.Addr{other4, other6} {
		refused(t, "tcp", at(a, 8443), exporterUID)
	}
	for _, a := range []netip.Addr{own4, own6} { // the guard, the gate, the agent's servers, the broker
		for _, port := range []uint16{41053, 41443, 3000, brokerPort} {
			refused(t, "tcp", at(a, port), exporterUID)
		}
		refused(t, "udp", at(a, 41053), exporterUID)
	}
	l.nowhere(mark(exporterUID))
}

func notTheExporter(t *testing.T, l *lab) {
	l.forget()
	others := []int{0, agentUID, guardUID, brokerUID, exporterImpostor, exporterNamesake}
	for _, a := range []netip.Addr{far4, far6} {
		for _, who := range others {
			refused(t, "tcp", at(a, 8443), who)
		}
		port := leftFlow(t, at(a, 8443), exporterUID) // the kernel believes that it lives
		for _, who := range []int{agentUID, brokerUID} {
			if got := askFrom(t, "tcp", port, at(a, 8443), who, "by "+mark(who)); got == "by "+mark(who) {
				t.Errorf("%d, from a port of the exporter's: reached %v", who, a)
			}
		}
		reached(t, "tcp", at(a, 443), brokerUID)
	}
	l.nowhere("by hello")
	for _, who := range slices.DeleteFunc(others, func(who int) bool { return who == brokerUID }) { // which reached its own
		l.nowhere(mark(who))
	}
}

func sharedWithExporter(t *testing.T, f *Firewall) {
	ctx := context.Background()
	must(t, f.Lease(ctx, longLeases(Broker, 8443, far4)))
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
	brokers, its := dial(brokerUID), dial(exporterUID)
	must(t, f.Revoke(ctx, []Element{{Addr: far4, Proto: unix.IPPROTO_TCP, Port: 8443, For: Broker}}))
	if got, err := pingFor(time.Second, brokers, "after"); err == nil {
		t.Errorf("the broker's flow lives on: %q", got)
	}
	refused(t, "tcp", at(far4, 8443), brokerUID)
	if _, err := ping(its, "after"); err != nil {
		t.Errorf("the exporter's ended with the broker's: %v", err)
	}
	must(t, f.Revoke(ctx, []Element{{Addr: far4, Proto: unix.IPPROTO_TCP, Port: 8443, For: Exporter}}))
	if got, err := pingFor(time.Second, its, "after"); err == nil {
		t.Errorf("the exporter's flow lives on: %q", got)
	}
	refused(t, "tcp", at(far4, 8443), exporterUID)
}

// TestKernelExporterScraped: the exporter is connected to from outside, at its own address and family alone, and by nobody
// from in here, root and the broker included.
func TestKernelExporterScraped(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	c := withBroker(t, l)
	c.ExporterUID, c.ExporterGID = exporterUID, exporterGID
	c.ExporterAt = []netip.AddrPort{at(netip.IPv4Unspecified(), 9464)}
	f := open(t, Options{})
	apply(t, f, c)
	must(t, f.Verify(context.Background()))
	var scraped atomic.Int32
	lis, err := net.Listen("tcp4", "0.0.0.0:9464") // as the keeper does, for the exporter to accept
	must(t, err)
	t.Cleanup(func() { lis.Close() })
	go as(exporterUID, func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 100)
			n, _ := conn.Read(buf)
			conn.Write(buf[:n])
			conn.Close()
			scraped.Add(1)
		}
	})
	echo(t, at(near6, 9464), "") // the agent's
	for _, who := range []int{0, agentUID, guardUID, brokerUID, exporterUID} {
		for _, a := range []netip.Addr{own4, near4} {
			refused(t, "tcp", at(a, 9464), who)
		}
	}
	if n := scraped.Load(); n != 0 {
		t.Errorf("%d connections from in here", n)
	}
	l.onPeer(func() {
		conn, err := net.DialTimeout("tcp", at(near4, 9464).String(), answerTime)
		must(t, err)
		defer conn.Close()
		if _, err := ping(conn, "scrape"); err != nil {
			t.Errorf("from outside: %v", err)
		}
		if conn, err := net.DialTimeout("tcp", at(near6, 9464).String(), 500*time.Millisecond); err == nil {
			conn.Close()
			t.Error("from outside: the agent is reached over the other family")
		}
	})
	if scraped.Load() != 1 {
		t.Error("proves nothing: the exporter was not reached")
	}
}
