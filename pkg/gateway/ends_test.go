package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

func arrives(t testing.TB, c net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, or others: %v", len(want), err)
	}
}

// TestAnyOrder has either side say, end and break off what it likes: the other one sees just that.
func TestAnyOrder(t *testing.T) {
	r := newRig(t, nil)
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
func TestHelloAndEnd(t *testing.T) {
	r := newRig(t, nil)
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
func TestServerFirst(t *testing.T) {
	r := newRig(t, nil)
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

// TestEndsAtOnce has connections end by themselves and by others at once. Each leaves one event, and nothing else.
func TestEndsAtOnce(t *testing.T) {
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

// TestEndedWhileJudged: a connection that a new policy ends while it is judged leaves one event.
func TestEndedWhileJudged(t *testing.T) {
	var r *rig
	r = newRig(t, func(c *settings) {
		c.FindAllowed = func() audit.Finder {
			r.policy.Store(parsePolicy(t, "two.test"))
			r.Recheck()
			return audit.Nobody
		}
	})
	c := r.connect(siteTLS)
	c.Write(helloFor("ok.test"))
	wantReset(t, c)
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedRevoked.Error())
	r.denied(siteTLS, string(helloFor("ok.test")))
	r.event(audit.Connect, 1)
	r.stop()
	if n := r.count(audit.Connect, audit.Deny, ""); n != 2 {
		t.Errorf("2 connections left %d events", n)
	}
}

// TestMuchBehindAnEnd: what comes behind the end of the other direction arrives, however much it is, and its own end too.
func TestMuchBehindAnEnd(t *testing.T) {
	r := newRig(t, nil)
	b := make([]byte, 3*bulkAfter)
	for _, clientFirst := range []bool{true, false} {
		for range 10 {
			first, second := r.pair("ok.test")
			if !clientFirst {
				first, second = second, first
			}
			first.CloseWrite()
			if n, err := second.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Fatalf("%d bytes, %v", n, err)
			}
			go func() {
				second.Write(b)
				second.Close()
			}()
			if n, err := io.Copy(io.Discard, first); n != int64(len(b)) || err != nil {
				t.Errorf("client first %t: %d bytes of %d, %v", clientFirst, n, len(b), err)
			}
			first.Close()
		}
	}
}

// TestResetForAnswer: a server that answers a hello by a reset is seen as such.
func TestResetForAnswer(t *testing.T) {
	r := newRig(t, nil)
	hello := helloFor("ok.test")
	r.server(siteTLS, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, len(hello)))
		abort(c)
	})
	for i := range 20 {
		c := r.connect(siteTLS)
		c.Write(hello)
		wantReset(t, c)
		c.Close()
		wantReason(t, r.event(audit.Connect, i), audit.Allow, "reset")
	}
}

// TestResetInsteadOfHello: a client that gives up is recorded as such.
func TestResetInsteadOfHello(t *testing.T) {
	r := newRig(t, nil)
	for i := range 5 {
		c := r.connect(siteTLS)
		c.Write(helloFor("ok.test")[:20])
		time.Sleep(time.Millisecond)
		abort(c)
		wantReason(t, r.event(audit.Connect, i), audit.Deny, "connection reset by peer")
	}
}

// descriptors counts the open ones.
func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestStormLeavesNothing has clients of all kinds end at any time.
func TestStormLeavesNothing(t *testing.T) {
	goroutines, before := runtime.NumGoroutine(), descriptors(t)
	t.Run("storm", func(t *testing.T) {
		r := newRig(t, func(c *settings) { c.FindAllowed = func() audit.Finder { return audit.Nobody } })
		hello, answer := helloFor("ok.test"), records(append([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80)...), 1<<14)
		var seed sync.Mutex
		n := uint64(0)
		r.server(siteTLS, func(c *net.TCPConn) {
			seed.Lock()
			n++
			dice := rand.New(rand.NewPCG(n, 1))
			seed.Unlock()
			c.SetDeadline(time.Now().Add(waitTime))
			switch dice.IntN(6) {
			case 0:
				abort(c)
				return
			case 1:
				c.Write(answer)
				abort(c)
				return
			case 2:
				c.Write(answer)
				return
			}
			io.ReadFull(c, make([]byte, len(hello)))
			c.Write(answer)
			if dice.IntN(2) == 0 {
				c.CloseWrite()
			}
			c.Write(make([]byte, dice.IntN(300_000)))
			if dice.IntN(2) == 0 {
				abort(c)
			}
		})
		var work sync.WaitGroup
		for k := range uint64(8) {
			work.Go(func() {
				dice := rand.New(rand.NewPCG(k, 2))
				for range 150 {
					c, err := net.Dial("tcp", r.listeners[siteTLS].Addr().String())
					if err != nil {
						continue
					}
					c.SetDeadline(time.Now().Add(waitTime))
					b := hello
					if dice.IntN(4) == 0 {
						b = slices.Concat(hello, hello[:dice.IntN(9)])
					}
					cut := dice.IntN(len(b))
					c.Write(b[:cut])
					if dice.IntN(4) == 0 {
						abort(c.(*net.TCPConn))
						continue
					}
					runtime.Gosched()
					c.Write(b[cut:])
					switch dice.IntN(4) {
					case 0:
						c.(*net.TCPConn).CloseWrite()
						io.Copy(io.Discard, c)
					case 1:
						c.Read(make([]byte, 100))
						c.Write(make([]byte, 1000))
					case 2:
						c.Read(make([]byte, 100))
						c.(*net.TCPConn).CloseWrite()
					}
					c.Close()
				}
			})
		}
		work.Wait()
		r.stop()
		if n := r.count(audit.Connect, audit.Fault, ""); n != 0 {
			t.Errorf("nobody ended %d connections", n)
		}
	})
	for late := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines+2 || descriptors(t) > before+3; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("left: %d goroutines of %d, %d descriptors of %d", runtime.NumGoroutine(), goroutines, descriptors(t), before)
		}
	}
}
