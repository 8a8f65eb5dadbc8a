package gateway

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
)

// message is what the gate let through of one request.
type message struct {
	host  string
	end   int  // offset behind it, in what was passed on
	whole bool // and not a part of it
	offer bool // of another protocol
	last  bool // of its connection
}

// passed does what the gate does with the requests in in, without judging hosts, and
// goes on behind a body.
func passed(in io.Reader) (out []byte, messages []message) {
	src := sourceFrom(in)
	var b bytes.Buffer
	for {
		n, err := readHead(src, nil)
		if err != nil {
			return b.Bytes(), messages
		}
		r, err := parseRequest(src.held()[:n], 80)
		if err != nil {
			return b.Bytes(), messages
		}
		if r.droppable() {
			r.offers = nil
		}
		b.Write(r.head(src.held()[:n]))
		src.take(n)
		err = forwardBody(src, &b, r.length)
		messages = append(messages, message{r.host, b.Len(), err == nil, r.switches(), r.last()})
		if err != nil || r.switches() {
			return b.Bytes(), messages
		}
	}
}

// FuzzRequest holds the gate against net/http: whatever the gate passes on,
// net/http finds the same hosts in, and the same messages.
func FuzzRequest(f *testing.F) {
	const host = "Host: ok.test\r\n"
	f.Add([]byte("GET / HTTP/1.1\r\n" + host + "\r\nGET /2 HTTP/1.1\r\nHost: two.test:80\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.0\r\n" + host + "\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\n" + host + "\r\n"))
	f.Add([]byte("POST http://ok.test:80/ HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"))
	f.Add([]byte("POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Add([]byte("OPTIONS * HTTP/1.1\r\n" + host + "Connection: close, te\r\nX: a\r\n b\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\n" + host + "Connection: close, Upgrade, HTTP2-Settings, x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\nExpect: 100-continue\r\n\r\nGET / HTTP/1.1\r\n" + host + "\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nConnection: Upgrade\r\nConnection: close\r\nUpgrade: h2c\r\n" + host + "Content-Length: 2\r\n\r\nhi"))
	f.Add([]byte("GET / HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("CONNECT [2001:DB8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n"))
	f.Add([]byte("GET http://ok.test?@evil.test/ HTTP/1.1\r\n" + host + "\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, messages := passed(bytes.NewReader(in))
		if len(in) < 2048 {
			slow, others := passed(&trickle{in})
			if !bytes.HasPrefix(out, slow) && !bytes.HasPrefix(slow, out) || len(messages) != len(others) {
				t.Fatalf("byte by byte %q, at once %q", slow, out)
			}
		}
		rest := bytes.NewReader(out)
		b := bufio.NewReader(rest)
		for _, m := range messages {
			q, err := http.ReadRequest(b)
			if err != nil {
				return // no net/http server serves it, nor what follows
			}
			got, _, err := net.SplitHostPort(q.Host)
			if err != nil {
				got = q.Host
			}
			if a, err := netip.ParseAddr(got); err == nil {
				got = a.String()
			}
			offer := q.Method == "CONNECT"
			for _, name := range []string{"Upgrade", "Http2-Settings"} {
				offer = offer || q.Header[name] != nil
			}
			if offer != m.offer {
				t.Fatalf("net/http sees %v, the gate %v", q.Header, m)
			}
			if m.last && !q.Close {
				t.Fatalf("net/http would wait for another request: %q", out)
			}
			want, _ := canonical(m.host)
			if got, ok := canonical(got); !ok || got != want {
				t.Fatalf("net/http sees the host %q, the gate %q", q.Host, m.host)
			}
			if m.offer {
				return
			}
			_, err = io.Copy(io.Discard, q.Body)
			at := len(out) - rest.Len() - b.Buffered()
			switch {
			case m.whole && (err != nil || at != m.end):
				t.Fatalf("net/http sees the end at %d (%v), the gate at %d of %q", at, err, m.end, out)
			case !m.whole && err == nil:
				t.Fatalf("net/http sees a whole message, the gate does not: %q", out)
			}
		}
	})
}

// FuzzResponse holds the gate's view of where a response ends against
// net/http's: only there may the gate speak itself.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.0 304 \r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nhi\r\n0\r\n\r\n", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\nhi", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		src := sourceOf(in)
		n, err := readHead(src, nil)
		if err != nil {
			return
		}
		r := parseResponse(src.held()[:n], asked{method: method})
		if r.switched {
			t.Fatalf("switched unasked: %q", in)
		}
		if r.length == untilEnd || r.interim() {
			return
		}
		var out bytes.Buffer
		out.Write(src.held()[:n])
		src.take(n)
		whole := forwardBody(src, &out, r.length) == nil
		rest := bytes.NewReader(in)
		b := bufio.NewReader(rest)
		a, err := http.ReadResponse(b, &http.Request{Method: method})
		if err != nil {
			return // a client that sees no response can't be told anything
		}
		_, err = io.Copy(io.Discard, a.Body)
		if at := len(in) - rest.Len() - b.Buffered(); whole && (err != nil || at != out.Len()) {
			t.Fatalf("net/http sees the end at %d (%v), the gate at %d of %q", at, err, out.Len(), in)
		}
	})
}
