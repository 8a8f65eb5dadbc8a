package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// expressed counts the connections that an express has now.
func (r *rig) expressed() (n int) {
	for _, c := range r.conns.all() {
		c.mu.Lock()
		if c.passage != nil {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// TestExpressPassesOn: what needs nothing else stays with the express, and what is much or slow leaves it.
func TestExpressPassesOn(t *testing.T) {
	r := newRig(t, nil)
	client, server := r.pair("ok.test")
	io.WriteString(client, "question")
	arrives(t, server, []byte("question"))
	if n := r.expressed(); n != 1 {
		t.Fatalf("%d connections are the express's, want 1", n)
	}
	much := make([]byte, 2*bulkAfter)
	go client.Write(much)
	arrives(t, server, much)
	if n := r.expressed(); n != 0 {
		t.Error("a connection that moves much is still the express's")
	}
	io.WriteString(server, "answer")
	arrives(t, client, []byte("answer"))
	r.mu.Lock()
	r.leases["two.test"] = netip.MustParseAddr("192.0.2.99") // which is not this address
	r.mu.Unlock()
	r.denied(siteTLS, string(helloFor("two.test")))
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedLease.Error())
}

func arrives(t testing.TB, c net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, or others: %v", len(want), err)
	}
}

// TestAnyOrder has either side say, end and break off what it likes: the other one sees just that.
func TestAnyOrder(t *testing.T) { eachWay(t, nil, tryAnyOrder) }

func tryAnyOrder(t *testing.T, r *rig) {
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 7))
		client, server := r.pair("ok.test")
		ends, ended, last := [2]*net.TCPConn{client, server}, [2]bool{}, ""
		for round := 0; round < 12 && !(ended[0] && ended[1]); round++ {
			side := dice.IntN(2)
			if ended[side] {
				side = 1 - side
			}
			from, to := ends[side], ends[1-side]
			switch roll := dice.IntN(12); {
			case roll < 8:
				b := make([]byte, 1+dice.IntN([]int{10, 40_000, 600_000}[dice.IntN(3)]))
				for i := range b {
					b[i] = byte(dice.Uint32())
				}
				wrote := make(chan error, 1)
				go func() {
					_, err := from.Write(b)
					wrote <- err
				}()
				arrives(t, to, b)
				if err := <-wrote; err != nil {
					t.Fatal(seed, err)
				}
			case roll < 11:
				ended[side] = true
				from.CloseWrite()
				if n, err := to.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Fatalf("seed %d: %d bytes, %v; want the end", seed, n, err)
				}
				last = "closed"
			default:
				abort(from)
				if !ended[side] {
					wantReset(t, to)
				}
				last = "reset"
				ended = [2]bool{true, true}
			}
		}
		if !ended[0] || !ended[1] {
			abort(client)
			last = "reset"
		}
		e := r.event(audit.Connect, int(seed))
		if e.Verdict != audit.Allow || e.Reason != "closed" && e.Reason != "reset" || last == "closed" && e.Reason != "closed" {
			t.Errorf("seed %d: recorded %+v; the last was %s", seed, e, last)
		}
		client.Close()
		server.Close()
	}
}

// TestHelloAndEnd: a client that ends its side with its hello gets the answer.
func TestHelloAndEnd(t *testing.T) { eachWay(t, nil, tryHelloAndEnd) }

func tryHelloAndEnd(t *testing.T, r *rig) {
	hello := helloFor("ok.test")
	answer := records(append([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80)...), 1<<14)
	r.server(siteTLS, func(c *net.TCPConn) {
		if b, err := io.ReadAll(c); !bytes.Equal(b, hello) || err != nil {
			t.Errorf("%d bytes arrived, %v", len(b), err)
		}
		c.Write(answer)
	})
	for range 20 {
		c := r.connect(siteTLS)
		c.Write(hello)
		c.CloseWrite()
		if b, err := io.ReadAll(c); !bytes.Equal(b, answer) || err != nil {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
}

// TestServerFirst: what a server says before it has the hello, and that it ends at once, arrives.
func TestServerFirst(t *testing.T) { eachWay(t, nil, tryServerFirst) }

func tryServerFirst(t *testing.T, r *rig) {
	alert := []byte{21, 3, 3, 0, 2, 2, 40}
	r.server(siteTLS, func(c *net.TCPConn) {
		c.Write(alert)
		c.CloseWrite()
		io.Copy(io.Discard, c)
	})
	for range 20 {
		c := r.connect(siteTLS)
		c.Write(helloFor("ok.test"))
		if b, err := io.ReadAll(c); !bytes.Equal(b, alert) || err != nil {
			t.Errorf("%x, %v", b, err)
		}
		c.Close()
	}
}

// deaf is an address that takes no more connections and says nothing of it.
func deaf(t *testing.T) netip.AddrPort {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at.(*unix.SockaddrInet4).Port))
	for {
		c, err := net.DialTimeout("tcp", to.String(), 200*time.Millisecond)
		if err != nil && late(err) {
			return to
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

// TestExpressDials: what an express connects to may be silent, or be revoked meanwhile.
func TestExpressDials(t *testing.T) {
	to := deaf(t)
	dialled := make(chan bool, 1)
	r := newRig(t, func(c *settings) {
		c.limits.dial = 300 * time.Millisecond
		c.at = func(netip.AddrPort) netip.AddrPort {
			dialled <- true
			return to
		}
	})
	for i, want := range []string{"could not connect: i/o timeout", refusedRevoked.Error()} {
		c := r.connect(siteTLS)
		c.Write(helloFor("two.test"))
		<-dialled
		if i == 1 {
			r.policy.Store(parsePolicy(t, "ok.test"))
			r.Recheck()
		}
		wantReset(t, c)
		if e := r.event(audit.Connect, i); e.Reason != want || e.Name != "two.test" {
			t.Errorf("recorded %+v, want %s", e, want)
		}
	}
	r.policy.Store(parsePolicy(t, "two.test"))
	c := r.connect(siteTLS)
	c.Write(helloFor("two.test"))
	<-dialled
	r.stop()
	wantReset(t, c)
}

// TestExpressEnds has connections end by themselves and by others at once. Each leaves one event, and nothing else.
func TestExpressEnds(t *testing.T) {
	r := newRig(t, func(c *settings) { c.limits.sniffing = 4 })
	r.echo(r.config())
	open, shut := parsePolicy(t, "ok.test"), parsePolicy(t, "two.test")
	config := insecure("ok.test")
	var began, worked atomic.Int64
	var clients, revoking sync.WaitGroup
	stop := make(chan struct{})
	revoking.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			r.policy.Store([]*policy.Policy{open, shut}[i%2])
			r.Recheck()
		}
	})
	for range 8 {
		clients.Go(func() {
			for range 50 {
				c, err := net.Dial("tcp", r.listeners[siteTLS].Addr().String())
				if err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Error(err)
					return
				}
				began.Add(1)
				if err != nil {
					continue
				}
				c.SetDeadline(time.Now().Add(waitTime))
				if talk(tls.Client(c, config), "ok.test") == nil {
					worked.Add(1)
				}
				c.Close()
			}
		})
	}
	clients.Wait()
	close(stop)
	revoking.Wait()
	r.event(audit.Connect, int(began.Load())-1)
	r.stop()
	if n := r.count(audit.Connect, audit.Allow, "") + r.count(audit.Connect, audit.Deny, ""); n != int(began.Load()) {
		t.Errorf("%d connections left %d events", began.Load(), n)
	}
	if n := r.count(audit.Connect, audit.Fault, ""); n != 0 {
		t.Errorf("nobody ended %d connections", n)
	}
	t.Logf("%d of %d worked", worked.Load(), began.Load())
}
