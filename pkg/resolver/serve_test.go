package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// serve runs the rig's server on loopback until the test ends, and returns its address.
func (r *rig) serve() string {
	r.t.Helper()
	l, pc := listenBoth(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, []net.PacketConn{pc}, []net.Listener{l}) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

func exchange(t testing.TB, network, addr string, q *dns.Msg) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: network, Timeout: 5 * time.Second}
	m, _, err := c.Exchange(q, addr)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestServe(t *testing.T) {
	r := newRig(t, "ok.test", "many.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	var many []string
	for i := range 32 {
		many = append(many, fmt.Sprintf("many.test. 60 A 192.0.2.%d", i))
	}
	r.up.set(t, "many.test.", "A", many...)
	addr := r.serve()
	for _, network := range []string{"udp", "tcp"} {
		for _, when := range []string{"new", "cached"} {
			if m := exchange(t, network, addr, asks("ok.test.", dns.TypeA)); !slices.Equal(addresses(m), []string{"192.0.2.1"}) {
				t.Errorf("%s, %s: %v", network, when, m)
			}
		}
		if m := exchange(t, network, addr, asks("evil.test.", dns.TypeA)); m.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %v", network, m)
		}
	}
	plain := new(dns.Msg)
	plain.SetQuestion("many.test.", dns.TypeA)
	if m := exchange(t, "udp", addr, plain); !m.Truncated {
		t.Errorf("32 addresses in 512 bytes: %v", m)
	}
	if m := exchange(t, "tcp", addr, plain); m.Truncated || len(m.Answer) != 32 {
		t.Errorf("32 addresses over TCP: %v", m)
	}
}

func TestServeEnds(t *testing.T) {
	t.Run("with ctx", func(t *testing.T) {
		r := newRig(t, "ok.test")
		l, pc := listenBoth(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Serve(ctx, []net.PacketConn{pc}, []net.Listener{l}); err != nil {
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is left open: %v", err)
		}
		if _, _, err := pc.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the socket is left open: %v", err)
		}
		if err := r.Prefetch(t.Context(), []string{"ok.test"}); err == nil {
			t.Error("a server that has ended still resolves")
		}
	})
	t.Run("with a broken socket", func(t *testing.T) {
		r := newRig(t, "ok.test")
		l, pc := listenBoth(t)
		pc.Close()
		if err := r.Serve(t.Context(), []net.PacketConn{pc}, []net.Listener{l}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("while asking", func(t *testing.T) {
		r := newRig(t, "ok.test")
		asking := make(chan struct{})
		r.exchange = func(ctx context.Context, _ question) (*dns.Msg, error) {
			close(asking)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Serve(ctx, nil, nil) }()
		go r.raw(packet(0, [4]uint16{1}, okA))
		<-asking
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestE18TCPSlowloris(t *testing.T) {
	r := newRig(t, "ok.test")
	r.limits.conns, r.limits.idle, r.limits.lifetime = 8, 10*time.Second, 20*time.Second
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	addr := r.serve()
	var held []net.Conn
	for i := range 200 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte{0, 50, 1}[:i%4%3+1]) // part of a query, and no more
		held = append(held, c)
		if i%50 != 0 {
			continue
		}
		for _, network := range []string{"udp", "tcp"} {
			if m := exchange(t, network, addr, asks("ok.test.", dns.TypeA)); len(m.Answer) != 1 {
				t.Errorf("%s with %d connections held: %v", network, i, m)
			}
		}
	}
	// The first ones have been closed to make room.
	held[0].SetReadDeadline(time.Now().Add(time.Minute))
	var ne net.Error
	if _, err := io.ReadAll(held[0]); errors.As(err, &ne) && ne.Timeout() {
		t.Errorf("the oldest connection is still open: %v", err)
	}
}

// TestE18TCPWaiters: a connection that has made room holds no more, also if its question is not answered yet.
func TestE18TCPWaiters(t *testing.T) {
	r := newRig(t, "slow.test")
	r.limits.conns = 4
	r.exchange = func(ctx context.Context, _ question) (*dns.Msg, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.patience = time.Minute
	addr := r.serve()
	query, err := asks("slow.test.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 50 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...))
	}
	for _, c := range conns[:len(conns)-r.limits.conns] {
		io.Copy(io.Discard, c) // until it has made room
	}
	serving := func() int {
		stacks := make([]byte, 4<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*Server).serveConn(")
	}
	for end := time.Now().Add(10 * time.Second); serving() > r.limits.conns; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are served, of which %d are open", serving(), r.limits.conns)
		}
	}
}

func TestE18TCPTimes(t *testing.T) {
	for _, tt := range []struct {
		what   string
		limits limits
		send   func(c net.Conn) // until it is closed
	}{
		{"idle", limits{idle: 30 * time.Millisecond, lifetime: time.Minute, queries: 100}, func(net.Conn) {}},
		{"total", limits{idle: time.Minute, lifetime: 50 * time.Millisecond, queries: 100}, func(c net.Conn) { c.Write(framed(okA)) }},
		{"queries", limits{idle: time.Minute, lifetime: time.Minute, queries: 3}, func(c net.Conn) {
			for range 3 {
				c.Write(framed(okA))
			}
		}},
		{"a query that is too long", limits{idle: time.Minute, lifetime: time.Minute, queries: 100}, func(c net.Conn) { c.Write([]byte{0xff, 0xff}) }},
		{"not a query", limits{idle: time.Minute, lifetime: time.Minute, queries: 100}, func(c net.Conn) { c.Write([]byte{0, 1, 0}) }},
	} {
		t.Run(tt.what, func(t *testing.T) {
			r := newRig(t, "other.test")
			tt.limits.conns = 256
			r.limits = tt.limits
			c, err := net.Dial("tcp", r.serve())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			tt.send(c)
			c.SetReadDeadline(time.Now().Add(time.Minute))
			var ne net.Error
			if _, err := io.Copy(io.Discard, c); errors.As(err, &ne) && ne.Timeout() {
				t.Error("the connection stays open")
			}
		})
	}
}

func framed(rest string) []byte {
	q := packet(0, [4]uint16{1}, rest)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
}

// TestE18Flood has more questions than there are places: those for the cache
// are answered all the same.
func TestE18Flood(t *testing.T) {
	r := newRigWith(t, func(*Config) {}, policyOf(t, "dns: {qps: 100000}\n", "",
		"ok.test", "slow0.test", "slow1.test", "slow2.test", "slow3.test", "slow4.test", "slow5.test"))
	r.limits.lookups, r.limits.waiters = 4, 2
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	r.lookupA("ok.test.")
	fast := r.exchange
	r.exchange = func(ctx context.Context, q question) (*dns.Msg, error) {
		if q.name == "ok.test" {
			return fast(ctx, q)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	addr := r.serve()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range 600 {
		pkt, err := asks(fmt.Sprintf("slow%d.test.", i%6), dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(pkt)
		if i%100 == 0 {
			if m := exchange(t, "udp", addr, asks("ok.test.", dns.TypeA)); len(m.Answer) != 1 {
				t.Errorf("answer %v", m)
			}
		}
	}
	got := r.Stats()
	if dropped := got.Queries.Load() - got.Allowed.Load() - got.Denied.Load(); dropped == 0 || got.Asked.Load() > 5 {
		t.Errorf("%d dropped, %d asked", dropped, got.Asked.Load())
	}
}

func TestManyClients(t *testing.T) {
	r := newRig(t, "*.wild.test", "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	addr := r.serve()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c := dns.Client{Timeout: 5 * time.Second}
			for j := range 50 {
				name := []string{"ok.test.", "evil.test.", fmt.Sprintf("n%d.wild.test.", j%5)}[(i+j)%3]
				m, _, err := c.Exchange(asks(name, dns.TypeA), addr)
				if err != nil || (name == "ok.test.") != (len(m.Answer) == 1) {
					t.Errorf("%s: %v, %v", name, m, err)
				}
			}
		})
	}
	wg.Wait()
}
