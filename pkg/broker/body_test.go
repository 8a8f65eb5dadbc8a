package broker

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestBodies holds that each size and coding arrives whole, or not at all, and that no room is lost.
func TestBodies(t *testing.T) {
	a := newAPI(t, true, nil)
	r := start(t, a)
	pack := func(b []byte) []byte {
		var to bytes.Buffer
		z := gzip.NewWriter(&to)
		z.Write(b)
		z.Close()
		return to.Bytes()
	}
	for _, size := range []int{0, 1, 4095, maxKept, maxKept + 1, 1 << 20, route.MaxBody, route.MaxBody + 1} {
		plain := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		for how, body := range map[string]io.Reader{
			"with its length": bytes.NewReader(plain),
			"in chunks":       io.MultiReader(bytes.NewReader(plain)),
			"packed":          bytes.NewReader(pack(plain)),
		} {
			if size == route.MaxBody && how != "with its length" {
				continue // it takes its time, and is as the others
			}
			req, err := http.NewRequest("POST", "http://"+r.addr+"/r/post", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Api-Key", token)
			if how == "packed" {
				req.Header.Set("Content-Encoding", "gzip")
			}
			before := len(a.requests())
			resp, err := client.Do(req)
			status := 0
			if err == nil { // else it was refused while it was on its way
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				status = resp.StatusCode
			}
			got := a.requests()[before:]
			if size > route.MaxBody {
				if len(got) > 0 || status != 0 && status != http.StatusRequestEntityTooLarge {
					t.Errorf("%d bytes %s: answered %d", size, how, status)
				}
				r.event()
				continue
			}
			if status != 200 || len(got) != 1 {
				t.Fatalf("%d bytes %s: answered %d, %v", size, how, status, err)
			}
			if b, _ := io.ReadAll(got[0].Body); !bytes.Equal(b, plain) || got[0].Header.Get("Content-Encoding") != "" {
				t.Errorf("%d bytes %s: the API got %d", size, how, len(b))
			}
			if e := r.event(); e.Sent != int64(size) {
				t.Errorf("%d bytes %s: recorded %+v", size, how, e)
			}
		}
	}
	r.allFree()
}

// allFree waits until nobody holds any room: a request gives it back behind its answer.
func (r *rig) allFree() {
	r.t.Helper()
	for until := time.Now().Add(patience); r.bodies.room.Free() != maxHeld; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			r.t.Fatalf("%d bytes of room are lost", maxHeld-r.bodies.room.Free())
		}
	}
}

// post begins a request with a body of length bytes, in chunks if that is less than 0, and sends the first n.
func (r *rig) post(length, n int) net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	head := fmt.Sprintf("POST /r/post HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\n", r.addr, token)
	if length >= 0 {
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head, length)
	} else {
		fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n", head, n)
	}
	if _, err := conn.Write(bytes.Repeat([]byte("x"), n)); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// TestIdleBodies holds that bodies of which nobody knows the length, and of which next to nothing comes, stop no others.
func TestIdleBodies(t *testing.T) {
	r := start(t, newAPI(t, true, nil), func(s *setting) {
		s.tune = func(p *Proxy) { p.bodies.room.Patience = time.Hour }
	})
	for range 4 * maxHeld / route.MaxBody {
		r.post(-1, 3)
		r.post(route.MaxBody, 3)
	}
	for _, size := range []int{3, route.MaxBody} {
		if got := r.ask("POST", "/r/post", strings.Repeat("x", size)); got.StatusCode != 200 {
			t.Errorf("%d bytes: answered %d %s", size, got.StatusCode, got.text)
		}
	}
}

// TestFullRoom holds that bodies that fill the room and come no further give way to one that comes.
func TestFullRoom(t *testing.T) {
	for what, length := range map[string]int{"with its length": route.MaxBody, "in chunks": -1} {
		t.Run(what, func(t *testing.T) {
			a := newAPI(t, true, nil)
			r := start(t, a, func(s *setting) {
				s.tune = func(p *Proxy) { p.bodies.room.Idle, p.bodies.room.Patience = 100*time.Millisecond, time.Hour }
			})
			var slow []net.Conn
			for range 3 {
				slow = append(slow, r.post(length, maxHeld/4-1))
			}
			for r.bodies.room.Free() > maxHeld/4 {
				time.Sleep(time.Millisecond)
			}
			got := r.ask("POST", "/r/post", strings.Repeat("x", maxHeld/4))
			if got.StatusCode != 200 {
				t.Errorf("answered %d %s", got.StatusCode, got.text)
			}
			ended := make(chan int)
			for _, c := range slow {
				go func() {
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err == nil {
						ended <- resp.StatusCode
					}
				}()
			}
			select {
			case code := <-ended:
				if code != http.StatusServiceUnavailable {
					t.Errorf("who gave way is answered %d", code)
				}
			case <-time.After(patience):
				t.Fatal("nobody gave way")
			}
			for _, c := range slow {
				c.Close()
			}
			r.allFree()
		})
	}
}

// TestSlowBody holds that who does not send what was promised is given up, and so is who waits for too long.
func TestSlowBody(t *testing.T) {
	a := newAPI(t, true, nil)
	r := start(t, a, func(s *setting) { s.tune = func(p *Proxy) { p.bodies.wait = 200 * time.Millisecond } })
	head := "POST /r/post HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\n"
	for _, rest := range []string{"Content-Length: 5\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
		if got := r.raw(head + rest); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
			t.Errorf("%q: answered %q", rest, got)
		}
	}
	if err := r.bodies.trees.Acquire(context.Background(), maxTrees); err != nil {
		t.Fatal(err)
	}
	got := r.ask("POST", "/r/post", "x")
	if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("X-Should-Retry") != "" {
		t.Errorf("answered %d %s", got.StatusCode, got.text)
	}
	r.bodies.trees.Release(maxTrees)
	if len(a.requests()) > 0 {
		t.Error("the API was asked")
	}
	r.allFree()
}

// TestHeld holds when the bytes of a body go.
func TestHeld(t *testing.T) {
	all := newBodies()
	of := func(size int) *held {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", size)))
		h := &held{}
		h.hold = all.room.Hold(func() { h.forget() })
		if err := h.read(t.Context(), r, time.Minute, func(time.Time) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return h
	}
	small, large := of(maxKept), of(maxKept+1)
	for _, h := range []*held{small, large} {
		r, err := h.reader()
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r)
	}
	if _, err := small.reader(); err != nil {
		t.Errorf("a small one can't be sent again: %v", err)
	}
	if _, err := large.reader(); !errors.Is(err, errForgotten) {
		t.Errorf("a large one is kept: %v", err)
	}
	small.answered()
	if small.data != nil || all.room.Free() != maxHeld {
		t.Error("a small one is kept when its answer has begun")
	}
	cut := of(10)
	r, err := cut.reader()
	if err != nil {
		t.Fatal(err)
	}
	cut.answered()
	io.ReadFull(r, make([]byte, 4))
	cut.drop()
	if _, err := io.ReadAll(r); !errors.Is(err, errForgotten) {
		t.Errorf("what is gone reads as %v", err)
	}
	cut.drop()
	if all.room.Free() != maxHeld {
		t.Error("room is lost, or given back twice")
	}
}
