package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// pair makes a relayed connection and returns both ends of it, past the hello.
func (r *rig) pair(name string) (client, server *net.TCPConn) {
	r.t.Helper()
	return r.pairBy(helloFor(name))
}

// pairBy is pair by that hello.
func (r *rig) pairBy(hello []byte) (client, server *net.TCPConn) {
	r.t.Helper()
	got := make(chan *net.TCPConn)
	done := make(chan struct{})
	r.t.Cleanup(func() { close(done) })
	r.server(siteTLS, func(c *net.TCPConn) {
		c.SetDeadline(time.Now().Add(waitTime))
		io.ReadFull(c, make([]byte, len(hello)))
		// A ServerHello, of which the rest never comes.
		c.Write(records(append([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80)...), 1<<14))
		got <- c
		<-done
	})
	client = r.connect(siteTLS)
	client.Write(hello)
	io.ReadFull(client, make([]byte, 5+86))
	return client, <-got
}

func TestHalfClose(t *testing.T) {
	r := newRig(t, nil)
	for _, clientFirst := range []bool{true, false} {
		client, server := r.pair("ok.test")
		first, second := client, server
		if !clientFirst {
			first, second = server, client
		}
		first.CloseWrite()
		if _, err := second.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("client first %v: %v", clientFirst, err)
		}
		for range 3 {
			io.WriteString(second, "still")
			if _, err := io.ReadFull(first, make([]byte, 5)); err != nil {
				t.Fatalf("client first %v: %v", clientFirst, err)
			}
		}
		second.CloseWrite()
		if _, err := first.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("client first %v: %v", clientFirst, err)
		}
	}
	wantReason(t, r.event(audit.Connect, 0), audit.Allow, "closed")
	wantReason(t, r.event(audit.Connect, 1), audit.Allow, "closed")
}

func TestResetIsPassedOn(t *testing.T) {
	r := newRig(t, nil)
	for _, tt := range []struct {
		label       string
		clientFirst bool
		halfClosed  bool
	}{{"client", true, false}, {"server", false, false}, {"client after its end", true, true}, {"server after its end", false, true}} {
		client, server := r.pair("ok.test")
		first, second := client, server
		if !tt.clientFirst {
			first, second = server, client
		}
		if tt.halfClosed {
			first.CloseWrite()
			if _, err := second.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("%s: %v", tt.label, err)
			}
		}
		abort(first)
		if !tt.halfClosed {
			wantReset(t, second)
			continue
		}
		// The end was read already: only the kernel knows.
		src, err := newSource(second)
		if err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); !src.reset(); runtime.Gosched() {
			if time.Since(began) > waitTime {
				t.Fatalf("%s: not passed on", tt.label)
			}
		}
	}
	for i := range 4 {
		r.event(audit.Connect, i)
	}
}

// TestBulk moves more than the kernel's buffers hold, both ways at once, with
// pauses in which a splice would have to wait.
func TestBulk(t *testing.T) {
	r := newRig(t, nil)
	client, server := r.pair("ok.test")
	const size = 24 << 20
	send := func(c *net.TCPConn, seed uint64) [32]byte {
		h := sha256.New()
		g := rand.NewChaCha8([32]byte{byte(seed)})
		b := make([]byte, 300<<10)
		for left := size; left > 0; {
			n := min(left, 1+int(g.Uint64()%uint64(len(b))))
			g.Read(b[:n])
			h.Write(b[:n])
			if _, err := c.Write(b[:n]); err != nil {
				t.Error(err)
				break
			}
			left -= n
		}
		c.CloseWrite()
		return [32]byte(h.Sum(nil))
	}
	receive := func(c *net.TCPConn) [32]byte {
		h := sha256.New()
		if n, err := io.Copy(h, c); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		return [32]byte(h.Sum(nil))
	}
	var out, in, gotOut, gotIn [32]byte
	var wg sync.WaitGroup
	wg.Go(func() { out = send(client, 1) })
	wg.Go(func() { in = send(server, 2) })
	wg.Go(func() { gotOut = receive(server) })
	wg.Go(func() { gotIn = receive(client) })
	wg.Wait()
	if out != gotOut || in != gotIn {
		t.Error("other bytes arrived")
	}
	e := r.event(audit.Connect, 0)
	wantReason(t, e, audit.Allow, "closed")
	if e.Out != uint64(size+len(helloFor("ok.test"))) || e.In != size+91 {
		t.Errorf("recorded %+v", e)
	}
}

// TestBackPressure: what the server does not read, the client can't send.
func TestBackPressure(t *testing.T) {
	r := newRig(t, nil)
	client, _ := r.pair("ok.test")
	client.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	var sent int
	block := make([]byte, 1<<20)
	for sent < 1<<30 {
		n, err := client.Write(block)
		sent += n
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return
		}
	}
	t.Errorf("%d bytes went nowhere", sent)
}

func TestManyAtOnce(t *testing.T) {
	r := newRig(t, func(c *settings) { c.limits.hello, c.limits.dial = waitTime, waitTime })
	r.echo(r.config())
	config := insecure("ok.test")
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	start := make(chan struct{})
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 500 {
		wg.Go(func() {
			<-start
			c, err := net.Dial("tcp", r.listeners[siteTLS].Addr().String())
			if err != nil {
				failed.Add(1)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(waitTime))
			if err := talk(tls.Client(c, config), "ok.test"); err != nil {
				failed.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d of 500 failed", n)
	}
}

// TestSlowClientsMakeRoom: those that say nothing, or one byte, are the ones
// that pay for it.
func TestSlowClientsMakeRoom(t *testing.T) {
	r := newRig(t, func(c *settings) { c.limits.sniffing = 8; c.limits.hello = waitTime })
	r.echo(r.config())
	var slow []*net.TCPConn
	for range 40 {
		c := r.connect(siteTLS)
		c.Write([]byte{22})
		slow = append(slow, c)
	}
	for i := range 32 {
		wantReset(t, slow[i])
		wantReason(t, r.event(audit.Connect, i), audit.Deny, refusedEvicted.Error())
	}
	c := tls.Client(r.connect(siteTLS), insecure("ok.test"))
	if err := talk(c, "ok.test"); err != nil {
		t.Error(err)
	}
	if evicted, sniffing, s := r.count(audit.Connect, audit.Deny, refusedEvicted.Error()), r.sniffing(), r.Stats(); evicted < 32 || sniffing > 8 || s.Allowed != 1 {
		t.Errorf("%d evicted, %d not judged, %+v", evicted, sniffing, s)
	}
}

func TestTooManyConnections(t *testing.T) {
	r := newRig(t, func(c *settings) { c.Connections = 2 })
	client, server := r.pair("ok.test")
	r.pair("ok.test")
	r.refused(siteTLS, "")
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedTooMany.Error())
	// The others don't notice, and a place that becomes free is free.
	io.WriteString(client, "x")
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	abort(client)
	r.event(audit.Connect, 1)
	r.pair("ok.test")
}

// TestStillOnesMakeRoom: who holds all places and moves nothing gives way to who comes, whether it was judged or not, and
// who moves keeps its place.
func TestStillOnesMakeRoom(t *testing.T) {
	r := newRig(t, func(c *settings) { c.Connections = 6; c.limits.still = time.Second; c.limits.hello = waitTime })
	moving, far := r.pair("ok.test")
	still, _ := r.pair("ok.test")
	var silent []*net.TCPConn
	for range 4 {
		silent = append(silent, r.connect(siteTLS))
	}
	end := make(chan struct{})
	var moves sync.WaitGroup
	moves.Go(func() {
		for one := make([]byte, 1); ; {
			io.WriteString(moving, "x")
			if _, err := far.Read(one); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	time.Sleep(1200 * time.Millisecond)
	for range 5 {
		r.pair("ok.test")
	}
	for _, c := range append(silent, still) {
		wantReset(t, c)
	}
	for i := range 5 {
		wantReason(t, r.event(audit.Connect, i), audit.Deny, refusedStill.Error())
	}
	close(end)
	moves.Wait()
}

// TestSilentOnesMakeRoom: those that say nothing are in nobody's way, however few may be open.
func TestSilentOnesMakeRoom(t *testing.T) {
	r := newRig(t, func(c *settings) { c.Connections = 4; c.limits.hello = waitTime })
	for range 8 {
		r.connect(siteTLS).Write([]byte{22})
	}
	r.pair("ok.test")
}

func TestIdleEnds(t *testing.T) {
	r := newRig(t, func(c *settings) { c.limits.idle = 100 * time.Millisecond })
	client, server := r.pair("ok.test")
	wantReset(t, client)
	wantReset(t, server)
	wantReason(t, r.event(audit.Connect, 0), audit.Allow, "idle for too long")
}

// TestUsedIsNotIdle: the limits end neither what is used now and then, nor what
// has passed its test.
func TestUsedIsNotIdle(t *testing.T) {
	r := newRig(t, func(c *settings) { c.limits.idle = time.Second; c.limits.hello = 500 * time.Millisecond })
	client, server := r.pair("ok.test")
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond; {
		client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		io.WriteString(client, "x")
		if _, err := server.Read(make([]byte, 1)); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
	}
}

func TestServeEndsAll(t *testing.T) {
	r := newRig(t, nil)
	client, server := r.pair("ok.test")
	waiting := r.connect(siteTLS)
	waiting.Write([]byte{22})
	r.stop()
	wantReset(t, client)
	wantReset(t, server)
	if _, err := net.Dial("tcp", r.listeners[siteTLS].Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: %v", err)
	}
}

// flaky is a listener that fails before it works.
type flaky struct {
	net.Listener
	errs []error
}

func (l *flaky) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return l.Listener.Accept()
}

func TestAcceptGoesOn(t *testing.T) {
	r := newRig(t, nil)
	l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- r.Serve(ctx, []net.Listener{&flaky{l, []error{syscall.EMFILE, syscall.ECONNABORTED, syscall.ENFILE, syscall.ENOBUFS}}})
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(waitTime))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := r.Serve(context.Background(), []net.Listener{&flaky{listen(t), []error{syscall.EBADF}}}); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a listener that is broken: %v", err)
	}
}

func TestNewRefusesNonsense(t *testing.T) {
	r := newRig(t, nil)
	good := Config{Policy: r.policy.Load, LeasedTo: r.leasedTo}
	for _, change := range []func(*Config){
		func(c *Config) { c.Policy = nil }, func(c *Config) { c.LeasedTo = nil },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Error("no error")
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

// TestIdleHoldsNothing: a connection that waits holds no buffer.
func TestIdleHoldsNothing(t *testing.T) {
	src, err := newSource(func() *net.TCPConn {
		l := listen(t)
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c.Write([]byte("hello"))
			c.(*net.TCPConn).CloseWrite()
		}()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(); c.Close() })
		return s.(*net.TCPConn)
	}())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := src.forward(&out, 5); err != nil || out.String() != "hello" || src.buf != nil {
		t.Errorf("%v, %q, buffer %v", err, out.String(), src.buf != nil)
	}
	if err := src.fill(); err != io.EOF || src.buf != nil {
		t.Errorf("%v, buffer %v", err, src.buf != nil)
	}
}

// TestLeaseEndsNoConnection: a kept-alive connection goes on after the lease,
// but for no other name.
func TestLeaseEndsNoConnection(t *testing.T) {
	r := newRig(t, nil)
	answer := "HTTP/1.1 204 No Content\r\n\r\n"
	r.script(answer, answer, answer)
	c := r.connect(siteWeb)
	ask := func(name string) {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)
	}
	b := make([]byte, len(answer))
	for range 2 {
		ask("ok.test")
		if _, err := io.ReadFull(c, b); err != nil || string(b) != answer {
			t.Fatalf("%q, %v", b, err)
		}
		r.mu.Lock()
		clear(r.leases)
		r.mu.Unlock()
	}
	ask("two.test")
	rest, err := io.ReadAll(c)
	if err != nil || !bytes.Contains(rest, []byte(refusedLease.Error())) {
		t.Errorf("%q, %v", rest, err)
	}
}
