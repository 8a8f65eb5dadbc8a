package gateway

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
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

// talkScript is what a client and a server do.
type talkScript struct {
	pieces  [][]byte // of the client's first words
	lets    []bool   // another run between them
	answer  [][]byte // of the server's first words
	early   bool     // these come without a hello
	waits   bool     // the client, for the answer
	second  []byte   // and says this then
	more    [2]int   // bytes each way after that, by side
	end     int      // who ends first, by side
	replies int      // bytes of answer in all
}

type outcome struct {
	client, server string // what they saw
	clientEnd      string
	serverEnd      string
	event          string
}

func sum(b []byte) string { return fmt.Sprintf("%d:%x", len(b), sha256.Sum256(b))[:20] }

func endOf(err error) string {
	switch {
	case err == nil || err == io.EOF:
		return "end"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	}
	return err.Error()
}

func (s *talkScript) run(r *rig, n int, set func(func(*net.TCPConn))) (o outcome) {
	o.serverEnd = "none"
	done := make(chan [2]string, 4)
	set(func(c *net.TCPConn) {
		c.SetDeadline(time.Now().Add(waitTime))
		var got []byte
		if !s.early {
			b := make([]byte, 1<<16)
			m, err := c.Read(b)
			got = append(got, b[:m]...)
			if err != nil {
				done <- [2]string{sum(got), endOf(err)}
				return
			}
		}
		for _, a := range s.answer {
			c.Write(a)
			runtime.Gosched()
		}
		var saying sync.WaitGroup
		saying.Go(func() {
			c.Write(make([]byte, s.more[serverSide]))
			if s.end == serverSide {
				c.CloseWrite()
			}
		})
		rest, err := io.ReadAll(c)
		saying.Wait()
		done <- [2]string{sum(append(got, rest...)), endOf(err)}
	})
	c := r.connect(siteTLS)
	defer c.Close()
	for i, p := range s.pieces {
		c.Write(p)
		if s.lets[i] {
			time.Sleep(200 * time.Microsecond)
		}
	}
	var got []byte
	if s.waits { // what comes before the answer is looked at, and behind it is not
		b := make([]byte, s.replies)
		m, _ := io.ReadFull(c, b)
		got = b[:m]
		c.Write(s.second)
	}
	wrote := make(chan bool)
	go func() {
		defer close(wrote)
		c.Write(make([]byte, s.more[clientSide]))
		if s.end == clientSide {
			c.CloseWrite()
		}
	}()
	b := make([]byte, 1<<16)
	var err error
	for err == nil {
		var m int
		m, err = c.Read(b)
		got = append(got, b[:m]...)
	}
	o.clientEnd = endOf(err)
	if o.clientEnd == "reset" {
		got = nil // how much of it came before is chance
	}
	<-wrote
	c.CloseWrite()
	o.client = sum(got)
	e := r.event(audit.Connect, n)
	o.event = fmt.Sprint(e.Verdict, " ", e.Reason, " ", e.Name, " ", e.Rule)
	if e.Verdict == audit.Allow || e.Out > 0 {
		said := <-done
		o.server, o.serverEnd = said[0], said[1]
		if e.Reason == "closed" {
			o.event += fmt.Sprint(" ", e.Out, " ", e.In)
		}
	}
	if e.Verdict == audit.Deny && e.Out > 0 {
		return outcome{event: o.event} // how much came before is chance
	}
	if e.Verdict == audit.Deny && len(got) == 0 {
		o.clientEnd = "" // a write that fails takes the reset away from the read
	}
	if o.serverEnd == "reset" {
		o.server = ""
	}
	return o
}

func randomScript(dice *rand.Rand) *talkScript {
	name := []string{
		"ok.test", "ok.test", "ok.test", "OK.test", "two.test", "evil.test", "away.test", "no.wild.test", "b.wild.test", "192.0.2.1", "ok.test.",
	}[dice.IntN(11)]
	var extra [][]byte
	if dice.IntN(4) == 0 {
		extra = append(extra, []byte{0xfe, 0x0d, 0, 4, 0, 1, 2, 3})
	}
	extra = append(extra, sni(entry(0, name)))
	if dice.IntN(3) == 0 {
		extra = append(extra, append([]byte{0, 21}, vec(2, make([]byte, dice.IntN(17_000)))...))
	}
	b := records(handshake(extra...), []int{1 << 14, 1 << 14, 1 << 14, 60, 1000}[dice.IntN(5)])
	plain := true
	switch dice.IntN(8) {
	case 0:
		b[dice.IntN(min(len(b), 80))] ^= byte(1 << dice.IntN(8))
		plain = false
	case 1:
		b = b[:dice.IntN(len(b))]
		plain = false
	case 2:
		b = append(b, 20, 3, 3, 0, 1, 1)
	case 3:
		b = append(b, helloFor("evil.test")...)
	case 4:
		b = slices.Concat([]byte{20, 3, 3, 0, 1, 1}, b)
	}
	s := &talkScript{early: dice.IntN(4) == 0, end: dice.IntN(2)}
	if !plain { // may want more
		s.end = clientSide
	}
	for len(b) > 0 {
		n := 1 + dice.IntN(len(b))
		if dice.IntN(2) == 0 {
			n = len(b)
		}
		s.pieces, s.lets = append(s.pieces, b[:n]), append(s.lets, dice.IntN(2) == 0)
		b = b[n:]
	}
	magic := sha256.Sum256([]byte("HelloRetryRequest"))
	answer := records(append([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80)...), 1<<14)
	if plain && dice.IntN(2) == 0 {
		answer = records(slices.Concat([]byte{2, 0, 0, 80, 3, 3}, magic[:], make([]byte, 48)), []int{1 << 14, 3, 38, 20}[dice.IntN(4)])
		s.second = [][]byte{helloFor(name), helloFor("evil.test"), append(helloFor(name), 20, 3, 3, 0, 1, 1),
			records(handshake([]byte{0xfe, 0x0d, 0, 4, 0, 1, 2, 3}, sni(entry(0, name))), 40)}[dice.IntN(4)]
	}
	s.replies = len(answer)
	for len(answer) > 0 {
		n := 1 + dice.IntN(len(answer))
		s.answer = append(s.answer, answer[:n])
		answer = answer[n:]
	}
	if s.waits = plain && dice.IntN(4) > 0 || s.second != nil; s.waits && dice.IntN(2) == 0 {
		for side := range s.more {
			s.more[side] = dice.IntN([]int{100, 60_000, 900_000}[dice.IntN(3)])
		}
	}
	return s
}

// TestSameBothWays has both ways do the same: what is seen of it is the same.
func TestSameBothWays(t *testing.T) {
	type lane struct {
		*rig
		mu    sync.Mutex
		serve func(*net.TCPConn)
	}
	var lanes [2]*lane
	for i, way := range []func(*settings){nil, slowly} {
		l := &lane{rig: newRig(t, way)}
		l.policy.Store(parsePolicy(t, "ok.test", "two.test", "away.test", "*.wild.test", "!no.wild.test"))
		l.leases["b.wild.test"] = netip.MustParseAddr("192.0.2.7")
		l.server(siteTLS, func(c *net.TCPConn) {
			l.mu.Lock()
			fn := l.serve
			l.mu.Unlock()
			fn(c)
		})
		lanes[i] = l
	}
	seen := map[string]int{}
	for seed := range uint64(talks) {
		s := randomScript(rand.New(rand.NewPCG(seed, 3)))
		var got [2]outcome
		for i, l := range lanes {
			got[i] = s.run(l.rig, int(seed), func(fn func(*net.TCPConn)) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.serve = fn
			})
		}
		seen[fmt.Sprint(got[0].clientEnd, " ", got[0].serverEnd, " ", got[0].event[:min(30, len(got[0].event))])]++
		if got[0] != got[1] {
			t.Errorf("seed %d: %d pieces, early %t, second %d, more %v, end %d\nexpress %+v\nslowly  %+v",
				seed, len(s.pieces), s.early, len(s.second), s.more, s.end, got[0], got[1])
		}
	}
	for k, n := range seen {
		t.Log(n, k)
	}
}

const talks = 60
