package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
)

func TestClosing(t *testing.T) {
	for head, want := range map[string]string{
		"POST / HTTP/1.1\r\nHost: a\r\n\r\n": "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"P:x / HTTP/1.1\r\n\r\n":             "P:x / HTTP/1.1\r\nConnection: close\r\n\r\n",
		"POST / HTTP/1.0\r\nConnection: Keep-Alive\r\nKeep-Alive: timeout=5\r\n\r\n":  "POST / HTTP/1.0\r\nConnection: close\r\n\r\n",
		"POST / HTTP/1.1\r\nconnection: keep-alive, TE\r\nTE: trailers\r\n\r\n":       "POST / HTTP/1.1\r\nTE: trailers\r\nConnection: close, te\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nX: y\r\nCONNECTION:\tx , ,X\r\n\r\n": "HTTP/1.1 200 OK\r\nX: y\r\nConnection: close, x\r\n\r\n",
	} {
		if got := string(rewrite([]byte(head), true)); got != want {
			t.Errorf("%q became %q, want %q", head, got, want)
		}
	}
}

// X41: a server may overlook a body and read it as a request, so a body is the last
// thing on a connection. Both sides are told, and what is sent behind it goes nowhere.
func TestRequestWithBodyIsTheLast(t *testing.T) {
	const second = "GET /second HTTP/1.1\r\nHost: ok.test\r\n\r\n"
	for _, tt := range []struct{ label, send, answer, told string }{
		{"length", "POST / HTTP/1.1\r\nHost: ok.test\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		{"chunks", "DELETE / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"},
		{"of a GET", "GET /_search HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 2\r\n\r\n{}",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		{"no end", "OPTIONS * HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.1 200 OK\r\n\r\nok"},
	} {
		t.Run(tt.label, func(t *testing.T) {
			r := newRig(t, nil)
			got := make(chan string, 1)
			r.server(siteWeb, func(c *net.TCPConn) {
				b := bufio.NewReader(c)
				q, err := http.ReadRequest(b)
				if err != nil || !q.Close || q.Header.Get("Connection") != "" && q.Header.Get("Connection") != "close" {
					t.Errorf("the server was not told to close: %+v, %v", q, err)
					return
				}
				io.Copy(io.Discard, q.Body)
				io.WriteString(c, tt.answer)
				if tt.label == "no end" {
					c.CloseWrite()
				}
				rest, _ := io.ReadAll(b) // it stays open, whatever it was told
				got <- string(rest)
			})
			c := r.connect(siteWeb)
			io.WriteString(c, tt.send+second)
			if all, err := io.ReadAll(c); string(all) != tt.told || err != nil {
				t.Errorf("the client got %q, %v", all, err)
			}
			io.WriteString(c, second)
			c.Close()
			if s := <-got; strings.Contains(s, "second") {
				t.Errorf("the server got %q", s)
			}
			method, _, _ := strings.Cut(tt.send, " ")
			wantReason(t, r.event(audit.HTTP, 1), audit.Deny, method+": what followed its body was dropped")
		})
	}
}
