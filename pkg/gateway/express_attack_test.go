package gateway

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// TestEndedWhileJudged: a connection that a new policy ends while it is judged leaves one event.
func TestEndedWhileJudged(t *testing.T) { eachWayWith(t, tryEndedWhileJudged) }

// eachWayWith is eachWay for a test that changes settings of the rig itself.
func eachWayWith(t *testing.T, test func(*testing.T, func(*settings))) {
	t.Run("express", func(t *testing.T) { test(t, func(*settings) {}) })
	t.Run("slowly", func(t *testing.T) { test(t, slowly) })
}

func tryEndedWhileJudged(t *testing.T, way func(*settings)) {
	var r *rig
	r = newRig(t, func(c *settings) {
		way(c)
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
func TestMuchBehindAnEnd(t *testing.T) { eachWay(t, nil, tryMuchBehindAnEnd) }

func tryMuchBehindAnEnd(t *testing.T, r *rig) {
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
func TestResetForAnswer(t *testing.T) { eachWay(t, nil, tryResetForAnswer) }

func tryResetForAnswer(t *testing.T, r *rig) {
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

// TestResetAtOnce: a reset that a write of the gate's is the first to see is passed on as one.
func TestResetAtOnce(t *testing.T) {
	r := newRig(t, nil)
	for i := range 20 {
		client, server := r.pair("ok.test")
		var c *conn
		for _, c = range r.conns.all() {
		}
		c.mu.Lock()
		p := c.passage
		if p == nil {
			t.Fatal("no express has it")
		}
		client.Write([]byte("x"))
		time.Sleep(2 * time.Millisecond)
		abort(server)
		for !tcpClosed(p.fd[serverSide]) {
			runtime.Gosched()
		}
		c.mu.Unlock()
		wantReset(t, client)
		client.Close()
		if e := r.event(audit.Connect, i); e.Verdict != audit.Allow || e.Reason != "reset" && e.Reason != "closed" {
			t.Errorf("recorded %+v", e)
		}
	}
}

// TestResetInsteadOfHello: what is recorded of it is the same each way.
func TestResetInsteadOfHello(t *testing.T) { eachWay(t, nil, tryResetInsteadOfHello) }

func tryResetInsteadOfHello(t *testing.T, r *rig) {
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
