package inspect

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// FuzzRequests: whatever a client sends, what arrives at the server is for its name, and is what a rule allows.
func FuzzRequests(f *testing.F) {
	r := start(f, nil, func(s *setting) {
		s.port, s.plain = 80, true
		s.Inspected = []route.Inspected{{Name: name, Port: 80, Plain: true, Allow: []route.Request{
			{Methods: []string{"GET", "POST"}, Path: "/ok/**", MaxUpload: 10, Rule: "p:1"},
		}}}
	})
	for _, s := range []string{
		"GET /ok/a HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"POST /ok/a?b=c HTTP/1.1\r\nHost: api.test:80\r\nContent-Length: 5\r\n\r\nhelloGET /no HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"POST /ok/a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
		"POST /ok/a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello hello\r\n0\r\n\r\n",
		"GET /ok/../no HTTP/1.1\r\nHost: api.test\r\n\r\n", "GET http://other.test/ok/a HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"GET /ok/a HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"POST /ok/a HTTP/1.1\r\nHost: api.test\r\nExpect: 100-continue\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		c, err := net.Dial("tcp", r.front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		c.Write(sent)
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, q := range r.got {
			path, _, _ := strings.Cut(q.RequestURI, "?")
			if q.Host != name || path != "/ok" && !strings.HasPrefix(path, "/ok/") || q.Method != http.MethodGet && q.Method != http.MethodPost {
				t.Errorf("%s %s of %s went on", q.Method, q.RequestURI, q.Host)
			}
		}
		for _, b := range r.bodies {
			if len(b) > 10 {
				t.Errorf("a body of %d bytes went on", len(b))
			}
		}
		r.got, r.bodies = nil, nil
	})
}
