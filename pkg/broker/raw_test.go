package broker

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// nothing is a connection that only can be closed.
type nothing struct{ net.Conn }

func (nothing) Close() error { return nil }

// basic is a line of a head that shows a key as git does.
func basic(key string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+key)) + "\r\n"
}

// TestOneRequestToAConnection sends requests with others hidden in them. The API gets the first, as it was judged, or none.
func TestOneRequestToAConnection(t *testing.T) {
	a := newAPI(t, false, nil)
	r := start(t, a)
	head := "POST /r/post HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\n"
	hidden := "GET /r/get HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\n\r\n"
	for name, c := range map[string]struct {
		request string
		body    string // what the API gets; "-": nothing
	}{
		"pipelined":                  {head + "Content-Length: 3\r\n\r\nabc" + hidden, "abc"},
		"keep-alive":                 {head + "Connection: keep-alive\r\nContent-Length: 3\r\n\r\nabc" + hidden, "abc"},
		"chunked":                    {head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + hidden, "abc"},
		"trailers":                   {head + "Trailer: X-Api-Key\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Api-Key: evil\r\nX-Fine: t\r\n\r\n", "abc"},
		"chunked, and a length":      {head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + hidden, "abc"},
		"a length, and chunked":      {head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden, ""},
		"two lengths":                {head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd" + hidden, "-"},
		"a list of lengths":          {head + "Content-Length: 3, 3\r\n\r\nabc" + hidden, "-"},
		"a signed length":            {head + "Content-Length: +3\r\n\r\nabc" + hidden, "-"},
		"another coding":             {head + "Transfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "-"},
		"two codings":                {head + "Transfer-Encoding: chunked, identity\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "-"},
		"a coding twice":             {head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "-"},
		"a folded line":              {head + "X-Fine: a\r\n X-Api-Key: evil\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		"a blank before the colon":   {head + "Transfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\nabc", "-"},
		"a bare return":              {head + "X-Fine: a\rX-Api-Key: evil\r\nContent-Length: 3\r\n\r\nabc", "-"},
		"a zero":                     {head + "X-Fine: a\x00b\r\nContent-Length: 3\r\n\r\nabc", "-"},
		"a chunk that is negative":   {head + "Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n", "-"},
		"a chunk that is too large":  {head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n", "-"},
		"a body that ends too early": {head + "Content-Length: 5\r\n\r\nabc", "-"},
		"a length that is too large": {head + "Content-Length: 99999999999\r\n\r\nabc", "-"},
		"a packed body":              {head + "Content-Encoding: zstd\r\nContent-Length: 3\r\n\r\nabc", "-"},
		"a body that is not packed":  {head + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "-"},
		"an odd expectation":         {head + "Expect: 200-ok\r\nContent-Length: 3\r\n\r\nabc", "-"},
	} {
		before := len(a.requests())
		r.halfClosing(c.request)
		got := a.requests()[before:]
		if c.body == "-" {
			if len(got) > 0 {
				t.Errorf("%s: the API got %s %s", name, got[0].Method, got[0].RequestURI)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%s: the API got %d requests", name, len(got))
			continue
		}
		body, _ := io.ReadAll(got[0].Body)
		if string(body) != c.body || got[0].RequestURI != "/base/post" || got[0].Header.Get("X-Api-Key") != canary ||
			len(got[0].Header["X-Api-Key"]) != 1 || len(got[0].Trailer) != 0 {
			t.Errorf("%s: the API got %s %q %v %v", name, got[0].RequestURI, body, got[0].Header, got[0].Trailer)
		}
	}
}

// halfClosing sends a request and no more, and waits for the end of its exchange.
func (r *rig) halfClosing(request string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, request)
	if strings.HasSuffix(request, "Content-Length: 5\r\n\r\nabc") {
		conn.(*net.TCPConn).CloseWrite()
	}
	io.Copy(io.Discard, conn) // an error says that the end came at once
}

// TestExpectContinue holds that a client who waits for leave to send gets it once its head is judged.
func TestExpectContinue(t *testing.T) {
	a := newAPI(t, true, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	r := start(t, a)
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, "POST /r/post HTTP/1.1\r\nHost: "+r.addr+"\r\nX-Api-Key: "+token+
		"\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	b := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(conn, b); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 100 ") {
		t.Fatalf("%q %v", b, err)
	}
	io.WriteString(conn, "abc")
	rest, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 200 ") || !strings.Contains(string(rest), "abc") {
		t.Errorf("%q %v", rest, err)
	}
}
