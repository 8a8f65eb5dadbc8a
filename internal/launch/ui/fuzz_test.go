package ui

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/agent-init/agent-init/internal/launch"
)

// FuzzFrame holds what readFrame gives back: no more than was asked for, and what its sender masked.
func FuzzFrame(f *testing.F) {
	f.Add(masked(0x82, []byte("keys")))
	f.Add(masked(0x81, bytes.Repeat([]byte("x"), 200)))
	f.Add(masked(0x89, nil))
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		const limit = 300
		r := bytes.NewReader(raw)
		got, err := readFrame(r, limit)
		if err != nil {
			return
		}
		if len(got.data) > limit || got.op > opPong || got.op >= opClose && (len(got.data) > 125 || !got.final) {
			t.Fatalf("%+v", got)
		}
		head := byte(got.op)
		if got.final {
			head |= 0x80
		}
		again, err := readFrame(bytes.NewReader(masked(head, got.data)), limit)
		if err != nil || !bytes.Equal(again.data, got.data) || again.op != got.op {
			t.Fatalf("%+v was read, and then %+v, %v", got, again, err)
		}
	})
}

// FuzzRequest sends whatever parses as a request to a server without anybody inside: nothing of the API answers, and
// every answer is hardened.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n"))
	f.Add([]byte("GET /api/fleet HTTP/1.1\r\nHost: 127.0.0.1:1\r\nCookie: agent-init-1=x\r\nX-Agent-Init-Key: x\r\n\r\n"))
	f.Add([]byte("POST /api/enter HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:1\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"token\":\"\"}"))
	f.Add([]byte("GET /api/attach HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: agent-init, key.x\r\n\r\n"))
	s := &Server{host: "127.0.0.1:1", port: "1", fleet: newFleet(launch.Engine{Name: "docker", Path: "/nonexistent"})}
	s.door.link()
	h := s.handler()
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		if w.Code < 300 && (strings.HasPrefix(q.URL.Path, "/api/") || q.Host != s.host) {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		if w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Fatalf("%v", w.Header())
		}
		if w.Header().Get("Set-Cookie") != "" || len(s.door.inside) > 0 {
			t.Fatal("somebody came in")
		}
	})
}

// FuzzContainer reads what a container prints, and holds what the page is shown: bounded, and without a character that
// a terminal or a page could take for anything but text.
func FuzzContainer(f *testing.F) {
	f.Add([]byte(`{"grants":[{"number":1,"kind":"request","target":"a.example","reason":"\u202e\u0007<b>","decided":{"reason":"\n"}}]}`), []byte(`{"healthy":true,"why":["\u001b]0;x\u0007","\n"]}`), "name")
	f.Add([]byte(`{"grants":[{"target":"`+strings.Repeat("ä", 2000)+`"}]}`), []byte(`{}`), "\xff\u2066")
	f.Fuzz(func(t *testing.T, printed, state []byte, name string) {
		k := &insight{}
		if json.Unmarshal(printed, &k.grants) != nil || json.Unmarshal(state, &k.status) != nil {
			return
		}
		c := launch.Container{ID: one, Name: name, Agent: name, Image: name, Dir: name, Status: name}
		v := viewOf(c, k)
		texts := []string{v.Name, v.Agent, v.Image, v.Dir, v.State, v.Why, v.Phase, v.Mode, v.Fault}
		for _, g := range v.Grants {
			texts = append(texts, g.Kind, g.Target, g.Reason, g.Process, g.Outcome)
			if g.Decided != nil {
				texts = append(texts, g.Decided.Reason)
			}
		}
		if len(v.Grants) > maxListed {
			t.Fatalf("%d grants", len(v.Grants))
		}
		for _, s := range texts {
			if len(s) > maxText+len("…") || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("the page is shown %q", s)
			}
		}
	})
}
