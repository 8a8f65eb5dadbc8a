package inspect

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// frame is one of a WebSocket.
func frame(first byte, masked bool, payload string) string {
	size := byte(len(payload))
	b := []byte{first, size}
	if masked {
		b[1] |= 0x80
		b = append(b, 0, 0, 0, 0)
	}
	return string(b) + payload
}

// echo is a server of WebSockets that says back what it hears, in frames of its own.
func echo(w http.ResponseWriter, q *http.Request) {
	if q.Header.Get("Upgrade") != "websocket" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
	for {
		head := make([]byte, 6)
		if _, err := io.ReadFull(rw, head); err != nil {
			return
		}
		payload := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(rw, payload); err != nil {
			return
		}
		if string(payload) == "rubbish" {
			io.WriteString(c, "\xff\xff\xff\xff")
			continue
		}
		io.WriteString(c, frame(head[0], false, string(payload)))
	}
}

// socket asks for a WebSocket.
func (r *rig) socket(t *testing.T, path string, headers ...string) (*tls.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	c, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"+
		"Sec-WebSocket-Version: 13\r\n", path, name)
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(c, "%s: %s\r\n", headers[i], headers[i+1])
	}
	io.WriteString(c, "\r\n")
	from := bufio.NewReader(c)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, from, resp
}

// TestWebSocket: one passes by its word alone, and carries nothing but frames.
func TestWebSocket(t *testing.T) {
	rules := any443(
		route.Request{Methods: []string{"GET"}, Path: "/ws", WebSocket: true, Rule: "p:1"},
		route.Request{Methods: []string{"GET"}, Path: "/few", WebSocket: true, MaxUpload: 10, Rule: "p:2"},
		route.Request{Methods: []string{"GET"}, Path: "/plain", Rule: "p:3"},
	)
	for _, up := range []bool{false, true} {
		r := start(t, echo, func(s *setting) { s.Inspected, s.http1 = rules, !up })
		c, from, resp := r.socket(t, "/ws")
		if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "x" {
			t.Fatal(resp)
		}
		for _, text := range []string{"hello", "", strings.Repeat("x", 125)} {
			io.WriteString(c, frame(0x82, true, text))
			back := make([]byte, 2+len(text))
			if _, err := io.ReadFull(from, back); err != nil || string(back[2:]) != text {
				t.Fatalf("%q %v", back, err)
			}
		}
		c.Close()
		if e := r.event(); e.Status != 101 || e.Sent != 130 || e.Received != 130 || e.Refused != "" {
			t.Errorf("%+v", e)
		}
		for path, sent := range map[string]string{
			"/ws": "EHLO mail.example\r\n", "/few": frame(0x82, true, "12345678901"),
		} {
			c, from, _ := r.socket(t, path)
			io.WriteString(c, sent)
			if b, _ := io.ReadAll(from); len(b) > 0 {
				t.Errorf("%s: came back %q", path, b)
			}
			if e := r.event(); e.Refused == "" {
				t.Errorf("%+v", e)
			}
		}
		c, from, _ = r.socket(t, "/ws")
		io.WriteString(c, frame(0x82, true, "rubbish"))
		if b, _ := io.ReadAll(from); len(b) > 0 {
			t.Errorf("the server sent what is no frame, and it came: %q", b)
		}
		if e := r.event(); !strings.HasPrefix(e.Refused, "protocol: ") {
			t.Errorf("%+v", e)
		}
		if _, _, resp := r.socket(t, "/plain"); resp.StatusCode != 403 {
			t.Error(resp)
		}
	}
}

// TestWebSocketUpload: max_upload holds for what has no payload, in whose masks the client writes what it likes, and for
// what would be unpacked by the server.
func TestWebSocketUpload(t *testing.T) {
	for _, most := range []int64{10, -1} {
		f := &frames{masked: true, most: most}
		sent := 0
		for ; sent < 1<<20 && f.walk([]byte(frame(0x89, true, ""))) == nil; sent += 6 {
		}
		if sent < 600 || sent > 8<<10 {
			t.Errorf("max_upload %d: %d bytes of heads pass", most, sent)
		}
	}
	if n := (&frames{masked: true}).walk([]byte(strings.Repeat(frame(0x89, true, ""), 1<<14))); n != nil {
		t.Error(n.Text)
	}
	rules := any443(
		route.Request{Methods: []string{"GET"}, Path: "/ws", WebSocket: true, Rule: "p:1"},
		route.Request{Methods: []string{"GET"}, Path: "/few", WebSocket: true, MaxUpload: 10, Rule: "p:2"},
	)
	r := start(t, echo, func(s *setting) { s.Inspected = rules })
	for path, want := range map[string]string{"/ws": "permessage-deflate", "/few": ""} {
		c, from, resp := r.socket(t, path, "Sec-WebSocket-Extensions", "permessage-deflate")
		if got := r.requests(); resp.StatusCode != 101 || got[len(got)-1].Header.Get("Sec-WebSocket-Extensions") != want {
			t.Errorf("%s: %v %v", path, resp, got[len(got)-1].Header)
		}
		io.WriteString(c, frame(0xc2, true, "packed"))
		back, _ := io.ReadAll(io.LimitReader(from, 2))
		if (len(back) > 0) != (want != "") {
			t.Errorf("%s: came back %q", path, back)
		}
		c.Close()
	}
}

// TestWebSocketOff: a policy that takes the rule away ends it.
func TestWebSocketOff(t *testing.T) {
	r := start(t, echo)
	_, from, _ := r.socket(t, "/")
	r.loaded.Inspected = any443(route.Request{Methods: []string{"GET"}, Rule: "p:9"})
	if err := r.Load(r.loaded); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(from); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Error(err)
	}
	if e := r.event(); !strings.HasPrefix(e.Refused, "policy: ") {
		t.Errorf("%+v", e)
	}
}

// FuzzFrames: in whatever pieces it comes, the verdict is the same, and no more is counted than came.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(frame(0x82, true, "hello")), uint8(3), true)
	f.Add([]byte("\x82\x7e\x01\x00"+strings.Repeat("x", 256)), uint8(1), false)
	f.Add([]byte("\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x01x\x89\x00"), uint8(7), false)
	f.Add([]byte("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff0000"), uint8(2), true)
	f.Add([]byte("EHLO mail.example\r\n"), uint8(9), true)
	f.Fuzz(func(t *testing.T, b []byte, piece uint8, masked bool) {
		whole, parts := &frames{masked: masked, most: 1 << 20}, &frames{masked: masked, most: 1 << 20}
		want := whole.walk(b)
		var got *no
		for rest := b; len(rest) > 0 && got == nil; {
			n := min(len(rest), int(piece)+1)
			got, rest = parts.walk(rest[:n]), rest[n:]
		}
		if (want == nil) != (got == nil) || want != nil && want.Text != got.Text {
			t.Fatalf("%v in one piece, %v in several", want, got)
		}
		if want == nil && (whole.payload < 0 || whole.payload > 1<<20 || whole.payload != parts.payload) {
			t.Fatal(whole.payload, parts.payload)
		}
		if want == nil && len(b) > 1 && bytes.HasPrefix(b, []byte("GET ")) {
			t.Fatal("a request of HTTP passes for a frame")
		}
	})
}
