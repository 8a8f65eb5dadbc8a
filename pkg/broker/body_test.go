package broker

import (
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

	"golang.org/x/sync/semaphore"

	"github.com/agent-init/agent-init/pkg/route"
)

// free says how much room bodies have.
func (b *bodies) free() int64 {
	n := int64(0)
	for b.room.TryAcquire(1 << 10) {
		n += 1 << 10
	}
	b.room.Release(n)
	return n
}

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
	if free := r.bodies.free(); free != maxHeld {
		t.Errorf("%d bytes of room are lost", maxHeld-free)
	}
}

// TestLargeBodiesWait holds that who comes while all room is taken waits for it, and is answered then.
func TestLargeBodiesWait(t *testing.T) {
	a := newAPI(t, true, nil)
	r := start(t, a)
	var slow []net.Conn
	for range maxHeld / route.MaxBody {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /r/post HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n", r.addr, token, route.MaxBody)
		slow = append(slow, conn)
	}
	for r.bodies.free() > 0 {
		time.Sleep(time.Millisecond)
	}
	answer := make(chan answered)
	go func() { answer <- r.ask("POST", "/r/post", "the body") }()
	select {
	case got := <-answer:
		t.Fatalf("answered %d while there was no room", got.StatusCode)
	case <-time.After(100 * time.Millisecond):
	}
	slow[0].Close()
	select {
	case got := <-answer:
		if got.StatusCode != 200 {
			t.Errorf("answered %d %s", got.StatusCode, got.text)
		}
	case <-time.After(patience):
		t.Fatal("there is room, and nobody is answered")
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
	for full, n := range map[*semaphore.Weighted]int64{r.bodies.room: maxHeld, r.bodies.trees: maxTrees} {
		if err := full.Acquire(context.Background(), n); err != nil {
			t.Fatal(err)
		}
		got := r.ask("POST", "/r/post", "x")
		if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("X-Should-Retry") != "" {
			t.Errorf("answered %d %s", got.StatusCode, got.text)
		}
		full.Release(n)
	}
	if len(a.requests()) > 0 {
		t.Error("the API was asked")
	}
	if free := r.bodies.free(); free != maxHeld {
		t.Errorf("%d bytes of room are lost", maxHeld-free)
	}
}

// TestHeld holds when the bytes of a body go.
func TestHeld(t *testing.T) {
	all := newBodies()
	of := func(size int) *held {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", size)))
		h, err := all.read(context.Background(), r, func(time.Time) error { return nil })
		if err != nil {
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
	if small.data != nil || all.free() != maxHeld {
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
	if all.free() != maxHeld {
		t.Error("room is lost, or given back twice")
	}
}
