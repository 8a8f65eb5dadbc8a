package inspect

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// openRequest are the fields of a request to api.test that a rule allows, as HTTP/2 has them.
var openRequest = []string{":method: GET", ":scheme: https", ":authority: api.test", ":path: /open/x"}

// frames asks api.test by the frame.
func frames(b *rig.Brokered, fields []string, flags ...string) lab.Poke {
	b.Helper()
	args := append([]string{"frames", "-timeout", "60s"}, flags...)
	for _, f := range fields {
		args = append(args, "-field", f)
	}
	return b.Poke(append(args, "api.test")...)
}

// speak sends text to api.test over TLS. The escapes are Go's.
func speak(b *rig.Brokered, text string) lab.Poke {
	b.Helper()
	return b.Poke("speak", "-timeout", "20s", "-esc", text, "api.test")
}

// TestInspectedHostile: heads and bodies that servers read in different ways are refused, on the connections where
// requests pass that are as they should be.
func TestInspectedHostile(t *testing.T) {
	b := inspected(t, "api.test POST /up max_upload=1KiB")
	if p := frames(b, openRequest); !p.OK {
		t.Fatalf("HTTP/2 by the frame: %s", p)
	}
	if p := frames(b, openRequest, "-split"); !p.OK {
		t.Fatalf("a head in several frames: %s", p)
	}
	if p := speak(b, `GET /open/x HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n`); !p.OK {
		t.Fatalf("HTTP/1.1 by the byte: %s", p)
	}
	honest := len(asked(b))
	with := func(instead string, more ...string) []string {
		name, _, _ := strings.Cut(instead[1:], ":")
		fields := append([]string{}, openRequest...)
		for i, f := range fields {
			if strings.HasPrefix(f, ":"+name+":") {
				fields[i] = instead
			}
		}
		return append(fields, more...)
	}
	for _, fields := range [][]string{
		with(":authority: other.test"), with(":authority: api.test", ":authority: other.test"), with(":authority: api.test", "host: other.test"),
		with(":authority: other.test", "host: api.test"), with(":authority: api.test:8443"), with(":authority: x@api.test"), with(":authority: "), with(":path: "),
		with(":path: *"), with(":path: https://other.test/open/x"), with(":path: /open/x", ":path: /closed"), with(":path: /open/x#/../../closed"), with(":path: /open/../closed"),
		with(`:path: /open/x HTTP/1.1\r\nHost: api.test\r\n\r\nDELETE /closed`), with(`:path: /open/x\x00`), with(":scheme: x"), with(":scheme: https", ":scheme: http"),
		with(":method: get"), with(":method: GET", ":method: DELETE"), with(`:method: GET /closed HTTP/1.1\r\nX:`), with(":method: CONNECT"), with(":method: CONNECT", ":protocol: websocket"),
		with(":method: GET", `x: y\r\n\r\nDELETE /closed HTTP/1.1`), with(":method: GET", `x\r\ny: z`), with(":method: GET", "X-Upper: y"), with(":method: GET", "transfer-encoding: chunked"),
		with(":method: GET", "connection: content-type"), with(":method: GET", "te: chunked"), with(":method: GET", "content-length: 1", "content-length: 2"),
		with(":method: GET", "x-http-method-override: DELETE"), with(":method: GET", ":unknown: x"), with(":method: GET", "upgrade: websocket"), openRequest[1:], openRequest[:3],
	} {
		if p := frames(b, fields, "-timeout", "5s"); p.OK {
			t.Errorf("%q is answered: %s", fields, p)
		}
	}
	const head, tail = `POST /up HTTP/1.1\r\nHost: api.test\r\n`, `DELETE /closed HTTP/1.1\r\nHost: api.test\r\n\r\n`
	for _, text := range []string{
		`GET /open/x HTTP/1.1\r\nHost: api.test\r\nHost: other.test\r\n\r\n`, `GET /open/x HTTP/1.1\r\nHost: other.test\r\n\r\n`, `GET /open/x HTTP/1.1\r\n\r\n`,
		`GET https://other.test/open/x HTTP/1.1\r\nHost: api.test\r\n\r\n`, `GET /open/x HTTP/1.1\r\nHost: api.test\r\n folded: x\r\n\r\n`, `GET /open/x HTTP/1.1\r\nHost : api.test\r\n\r\n`,
		`GET /closed\tHTTP/1.1\r\nHost: api.test\r\n\r\n`, `GET /open/x HTTP/0.9\r\n\r\n`, `GET /open/x\r\n\r\n`, `get /open/x HTTP/1.1\r\nHost: api.test\r\n\r\n`,
		`GET /open/x HTTP/1.1\nHost: api.test\n\x00: x\n\n`, `CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n`, `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`, `OPTIONS * HTTP/1.1\r\nHost: api.test\r\n\r\n`,
		`SSH-2.0-x\r\n\r\n`, `GET /open/x HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`,
		head + `Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n` + tail, head + `Content-Length: 0\r\nContent-Length: 44\r\n\r\n` + tail,
		head + `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n` + tail, head + `Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n` + tail,
		head + `Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n` + tail, head + `Content-Length: +4\r\n\r\n0\r\n\r\n` + tail, head + `Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n` + tail,
		head + `Content-Length: 2000\r\n\r\n`, head + `Transfer-Encoding: chunked\r\n\r\n7d0\r\n` + strings.Repeat("x", 2000) + `\r\n0\r\n\r\n`,
		`GET /open/x HTTP/1.1\r\nHost: api.test\r\nX: ` + strings.Repeat("x", 100<<10) + `\r\n\r\n`,
	} {
		if p := speak(b, text); p.OK {
			t.Errorf("%.100q is answered: %s", text, p)
		}
	}
	got := asked(b)
	for _, request := range got[honest:] {
		if request != "POST /up" { // of which the body ended too early, or was too large
			t.Errorf("api.test was asked %q", request)
		}
	}
	// What goes on is said anew: the scheme of the connection, and the length of what came.
	if p := frames(b, with(":scheme: http", "content-length: 5")); !p.OK {
		t.Errorf("another scheme and length: %s", p)
	}
	for _, r := range b.Lab.Web.Requests("api.test") {
		if r.URI == "/open/x" && (!r.TLS || r.Header["Content-Length"] != nil) {
			t.Errorf("%s %s came with TLS %v and %v", r.Method, r.URI, r.TLS, r.Header)
		}
		if len(r.Body) > 1<<10 {
			t.Errorf("%s %s came with %d bytes", r.Method, r.URI, len(r.Body))
		}
	}
}

// TestInspectedFloods: floods of frames and of heads end the connection that they come on, or are borne. They cost
// the broker little, and api.test nothing.
func TestInspectedFloods(t *testing.T) {
	b := inspected(t)
	if p := b.Get("/open/first"); !p.OK {
		t.Fatalf("%s\n%s", p, b.Agent.Stderr())
	}
	before := b.Process()
	size := residentOf(t, before.Host)
	for kind, n := range map[string]string{"reset": "20000", "continuation": "20000", "bomb": "200", "settings": "50000", "ping": "50000", "empty": "20000"} {
		p := frames(b, openRequest, "-flood", kind, "-n", n)
		t.Logf("%s: %s", kind, p)
		if (kind == "continuation" || kind == "bomb" || kind == "empty") && p.OK {
			t.Errorf("a flood of %s is borne: %s", kind, p)
		}
		if p := b.Get("/open/after"); !p.OK {
			t.Errorf("after a flood of %s: %s", kind, p)
		}
	}
	if now := b.Process(); now.Host != before.Host {
		t.Error("the broker has ended")
	}
	if now := residentOf(t, before.Host); now > size+64<<10 {
		t.Errorf("the broker has grown from %d KiB to %d", size, now)
	}
	if n := len(asked(b)); n > 2000 {
		t.Errorf("api.test was asked %d times", n)
	}
}

// TestInspectedUnread: what an agent sends to a server that reads nothing stays with the agent. A connection costs the
// broker the least window of HTTP/2 and some buffers, however much is to come.
func TestInspectedUnread(t *testing.T) {
	const connections, each = 400, 256 // KiB
	b := inspected(t, "api.test POST /up")
	b.Lab.Web.Handle("api.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-r.Context().Done()
		}
	}))
	if p := b.Get("/open/first"); !p.OK {
		t.Fatalf("%s\n%s", p, b.Agent.Stderr())
	}
	broker := b.Process()
	before := residentOf(t, broker.Host)
	most := before
	filled := b.AsAgent(b.Box, "fill", "-timeout", "2m", "-ca", rig.Trust(), "-n", fmt.Sprint(connections), "https://api.test/up")
	for done := false; !done; {
		select {
		case <-filled.Done():
			done = true
		case <-time.After(50 * time.Millisecond):
			most = max(most, residentOf(t, broker.Host))
		}
	}
	if v := rig.Verdict(t, filled); !v.OK {
		t.Errorf("%s\n%s", v, b.Agent.Stderr())
	}
	t.Logf("the broker has grown from %d KiB to %d", before, most)
	if most > before+connections*each {
		t.Errorf("the broker has grown from %d KiB to %d", before, most)
	}
	if p := b.Get("/open/after"); !p.OK || b.Process().Host != broker.Host {
		t.Errorf("after all: %s", p)
	}
}

// residentOf are the KiB of memory that a process has.
func residentOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nVmRSS:")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
