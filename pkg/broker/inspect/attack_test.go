package inspect

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestAuthority: whatever else a request names, it goes to the name of its connection or nowhere.
func TestAuthority(t *testing.T) {
	r := start(t, nil)
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n":                                  "HTTP/1.1 421",
		"GET / HTTP/1.1\r\nHost: api.test.\r\n\r\n":                                   "HTTP/1.1 421",
		"GET / HTTP/1.1\r\nHost: api.test:8443\r\n\r\n":                               "HTTP/1.1 421",
		"GET / HTTP/1.1\r\nHost: x@api.test\r\n\r\n":                                  "HTTP/1.1 4",
		"GET / HTTP/1.1\r\nHost: api.test\r\nHost: other.test\r\n\r\n":                "HTTP/1.1 400",
		"GET / HTTP/1.1\r\n\r\n":                                                      "HTTP/1.1 400",
		"GET https://other.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n":                  "HTTP/1.1 421",
		"GET https://api.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n":                  "HTTP/1.1 403",
		"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n":                 "HTTP/1.1 403",
		"OPTIONS * HTTP/1.1\r\nHost: api.test\r\n\r\n":                                "HTTP/1.1 403",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                            "HTTP/1.1 4",
		"GET / HTTP/1.0\r\nHost: api.test\r\n\r\n":                                    "HTTP/1.0 505",
		"SSH-2.0-OpenSSH_9.2\r\n":                                                     "HTTP/1.1 400",
		"GET / HTTP/1.1\r\nHost: api.test\r\nX: a\r\n b\r\nConnection: close\r\n\r\n": "HTTP/1.1 ",
		"GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close, X-A\r\n\r\n":          "HTTP/1.1 403",
		"GET / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 1, 2\r\n\r\nxx":          "HTTP/1.1 400",
		"POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: x\r\n\r\nxx":         "HTTP/1.1 501",
	} {
		if got := r.raw("http/1.1", request); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %.80q, want %s", request, got, want)
		}
	}
	for _, q := range r.requests() {
		if q.Host != name || q.Header["X"] == nil {
			t.Errorf("went on: %s %s %v", q.Host, q.RequestURI, q.Header)
		}
	}
}

// stream2 is a connection of HTTP/2 that is spoken by hand.
type stream2 struct {
	t *testing.T
	*http2.Framer
	conn net.Conn
}

func (r *rig) speak2(t *testing.T) *stream2 {
	t.Helper()
	c, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: name, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, http2.ClientPreface)
	s := &stream2{t, http2.NewFramer(c, c), c}
	s.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	s.WriteSettings()
	return s
}

// send begins a stream with a head.
func (s *stream2) send(id uint32, fields ...string) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i+1 < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndStream: true, EndHeaders: true})
}

// answer is the status of a stream, RST if there is none, and GOAWAY if the connection ends.
func (s *stream2) answer(id uint32) string {
	for {
		f, err := s.ReadFrame()
		if err != nil {
			return "GOAWAY"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == id {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "RST"
			}
		case *http2.GoAwayFrame:
			return "GOAWAY"
		}
	}
}

// TestPseudoHeaders: what the head of HTTP/2 says twice has to agree.
func TestPseudoHeaders(t *testing.T) {
	r := start(t, nil)
	head := func(more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "https", ":authority", name, ":path", "/"}, more...)
	}
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{head(), "200"}, {head("host", name), "200"}, {head("host", "other.test"), "421"},
		{head("host", name, "host", "other.test"), "421"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "other.test", ":path", "/", "host", name}, "421"},
		{[]string{":method", "GET", ":scheme", "https", ":path", "/", "host", name}, "200"},
		{[]string{":method", "GET", ":scheme", "https", ":path", "/"}, "421"},
		{[]string{":method", "GET", ":scheme", "http", ":authority", name, ":path", "/"}, "200"},
		{[]string{":method", "GET", ":scheme", "ftp", ":authority", name, ":path", "/"}, "RST"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", name, ":path", "*"}, "403"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", name, ":path", "https://other.test/"}, "403"},
		{[]string{":method", "CONNECT", ":authority", name}, "403"},
		{[]string{":method", "CONNECT", ":authority", name, ":scheme", "https", ":path", "/", ":protocol", "websocket"}, "RST"},
		{[]string{":method", "GET", ":method", "POST", ":scheme", "https", ":authority", name, ":path", "/"}, "RST"},
		{[]string{":method", "GET", ":scheme", "https", ":authority", name, ":authority", "other.test", ":path", "/"}, "RST"},
		{head("connection", "x-a"), "RST"}, {head("transfer-encoding", "chunked"), "RST"}, {head("x-a", "b\r\nhost: c"), "RST"},
		{head("x-http-method-override", "DELETE"), "403"}, {head("x_http_method_override", "DELETE"), "403"},
	} {
		s := r.speak2(t)
		s.send(1, c.fields...)
		if got := s.answer(1); got != c.want && !(c.want == "RST" && (got == "GOAWAY" || got[0] == '4')) {
			t.Errorf("%q: %s, want %s", c.fields, got, c.want)
		}
	}
	for _, q := range r.requests() {
		if q.Host != name || q.RequestURI != "/" || q.TLS == nil {
			t.Errorf("went on: %s %s %v", q.Host, q.RequestURI, q.Header)
		}
	}
}

// TestFloods: a connection that resets, or sends heads without end, ends alone.
func TestFloods(t *testing.T) {
	r := start(t, func(w http.ResponseWriter, q *http.Request) { w.Write([]byte("hello")) })
	head := []string{":method", "GET", ":scheme", "https", ":authority", name, ":path", "/"}
	t.Run("rapid reset", func(t *testing.T) {
		s := r.speak2(t)
		go io.Copy(io.Discard, s.conn)
		var err error
		for i := uint32(1); i < 1<<30 && err == nil; i += 2 {
			s.send(i, head...)
			err = s.WriteRSTStream(i, http2.ErrCodeCancel)
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it goes on for ever")
		}
	})
	t.Run("continuation", func(t *testing.T) {
		s := r.speak2(t)
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for i := 0; i+1 < len(head); i += 2 {
			e.WriteField(hpack.HeaderField{Name: head[i], Value: head[i+1]})
		}
		err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndStream: true})
		b.Reset()
		e.WriteField(hpack.HeaderField{Name: "x-a", Value: strings.Repeat("a", 4000), Sensitive: true})
		for i := 0; i < 1<<16 && err == nil; i++ {
			err = s.WriteContinuation(1, false, b.Bytes())
		}
		if err == nil {
			t.Error("it goes on for ever")
		}
	})
	t.Run("large head", func(t *testing.T) {
		both(t, func(t *testing.T, two bool) {
			q, _ := http.NewRequest("GET", "https://"+name+"/", nil)
			q.Header.Set("X-A", strings.Repeat("a", 1<<20))
			resp, err := r.client(two).Do(q)
			if err == nil && resp.StatusCode != 431 {
				t.Error(resp)
			}
		})
	})
	if got := r.ask(r.client(true), "GET", "/", ""); got.text != "hello" {
		t.Error("others are not served any more")
	}
}

// TestHandshake: who is not served is named in an event, with the reason.
func TestHandshake(t *testing.T) {
	r := start(t, nil)
	dial := func(c *tls.Config) error {
		conn, err := tls.Dial("tcp", r.front.Addr().String(), c)
		if err == nil {
			conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		return err
	}
	for what, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"pins":       {&tls.Config{ServerName: name, RootCAs: x509.NewCertPool()}, "client: the client does not accept"},
		"other name": {&tls.Config{ServerName: "www.api.test", RootCAs: trusted}, "client: "},
		"no name":    {&tls.Config{InsecureSkipVerify: true}, "client: "},
		"alpn":       {&tls.Config{ServerName: name, RootCAs: trusted, NextProtos: []string{"mqtt"}}, "protocol: "},
		"old":        {&tls.Config{ServerName: name, RootCAs: trusted, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}, "client: "},
	} {
		if err := dial(c.config); err == nil {
			t.Errorf("%s: it is served", what)
		}
		if e := r.event(); !strings.HasPrefix(e.Refused, c.want) || e.Name != name || e.Status != 0 {
			t.Errorf("%s: %+v", what, e)
		}
	}
	conn, err := net.Dial("tcp", r.front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
	if e := r.event(); !strings.HasPrefix(e.Refused, "protocol: ") {
		t.Errorf("%+v", e)
	}
	r.raw("http/1.1", "SSH-2.0-OpenSSH_9.2 and what follows is no request of HTTP at all, whoever reads it\r\n")
	if e := r.event(); !strings.HasPrefix(e.Refused, "protocol: ") {
		t.Errorf("%+v", e)
	}
	if r.raw("http/1.1", ""); !strings.HasPrefix(r.event().Refused, "gone: ") {
		t.Error("a client that closes is taken for another")
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("%d requests went on", n)
	}
}

// swapped gives a session to whoever asks for another name.
type swapped struct{ kept *tls.ClientSessionState }

func (s *swapped) Get(string) (*tls.ClientSessionState, bool) { return s.kept, s.kept != nil }
func (s *swapped) Put(_ string, c *tls.ClientSessionState) {
	if c != nil {
		s.kept = c
	}
}

// TestTickets: a session goes on, and leads to no other name.
func TestTickets(t *testing.T) {
	r := start(t, func(w http.ResponseWriter, q *http.Request) { w.Write([]byte("hello")) })
	cache := &swapped{}
	connect := func(server string) (*tls.Conn, error) {
		c, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{
			RootCAs: trusted, ServerName: server, ClientSessionCache: cache, InsecureSkipVerify: server != name,
		})
		if err != nil {
			return nil, err
		}
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n")
		b, err := io.ReadAll(c)
		c.Close()
		if err == nil && !strings.Contains(string(b), "hello") {
			err = fmt.Errorf("answered %.60q", b)
		}
		return c, err
	}
	for i := range 2 {
		if c, err := connect(name); err != nil || c.ConnectionState().DidResume != (i == 1) {
			t.Fatal(i, err)
		}
	}
	before := len(r.requests())
	if _, err := connect("other.test"); err == nil || len(r.requests()) != before {
		t.Error("a session leads to another name")
	}
}

// TestOnlyInspected: a guard that says otherwise is not believed.
func TestOnlyInspected(t *testing.T) {
	for _, c := range []struct {
		handed string
		port   uint16
	}{{"other.test", 443}, {name, 8443}, {"www." + name, 443}, {"", 443}} {
		r := start(t, nil, func(s *setting) { s.handed, s.port = c.handed, c.port })
		conn, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: name})
		if err == nil {
			conn.Close()
			t.Errorf("%v is served", c)
		}
		if e := r.event(); !strings.HasPrefix(e.Refused, "name: ") || e.Name != c.handed {
			t.Errorf("%v: %+v", c, e)
		}
	}
}

// TestWildcard: each name below a wildcard is its own.
func TestWildcard(t *testing.T) {
	r := start(t, nil, func(s *setting) {
		s.handed = "a.wild.test"
		s.Inspected = []route.Inspected{{Name: "wild.test", Wildcard: true, Port: 443, Allow: []route.Request{{Rule: "p:1"}}}}
	})
	c := r.client(true)
	q, _ := http.NewRequest("GET", "https://a.wild.test/", nil)
	if got := r.do(c, q); got.StatusCode != 200 || r.requests()[0].Host != "a.wild.test" {
		t.Error(got.Response, got.text)
	}
	q.Host = "b.wild.test"
	if got := r.do(c, q); got.StatusCode != 421 {
		t.Error(got.Response, got.text)
	}
}

// TestOverlooked: a server that does not read the body of a request has nothing behind it that it would take for another
// one, since it is told that there is none. Which methods' bodies mean something, each server reads.
func TestOverlooked(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		r := start(t, func(http.ResponseWriter, *http.Request) {}, func(s *setting) {
			s.http1 = true
			s.Inspected = any443(route.Request{Rule: "p:1", MaxUpload: 64})
		})
		behind := "DELETE /x HTTP/1.1\r\nHost: api.test\r\n\r\n"
		for _, c := range []struct {
			method, body string
			close        bool
		}{
			{"GET", behind, true}, {"HEAD", behind, true}, {"DELETE", behind, true}, {"OPTIONS", behind, true}, {"POST", behind, true}, {"PUT", behind, true},
			{"GET", "", false}, {"DELETE", "", false}, {"POST", "", false},
		} {
			before := len(r.requests())
			if got := r.ask(r.client(two), c.method, "/x", c.body); got.StatusCode != 200 {
				t.Errorf("%+v: %d %s", c, got.StatusCode, got.text)
				continue
			}
			if came := r.requests()[before]; came.Close != c.close || came.Method != c.method || came.Header["Connection"] != nil && !c.close {
				t.Errorf("%+v: closes the connection: %t", c, came.Close)
			}
		}
	})
}

// TestWebSocketHasNoBody: what a server does not read before it agrees would be a request behind it.
func TestWebSocketHasNoBody(t *testing.T) {
	r := start(t, nil, func(s *setting) { s.Inspected = any443(route.Request{Rule: "p:1", WebSocket: true}) })
	for _, asks := range []string{
		"GET / HTTP/1.1\r\nContent-Length: 1\r\n%s\r\nx", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n%s\r\n1\r\nx\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\n%s\r\n",
	} {
		got := r.raw("http/1.1", fmt.Sprintf(asks, "Host: "+name+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"))
		if !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "without a body") {
			t.Errorf("%q: %s", asks, got)
		}
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("%d went on", n)
	}
}
