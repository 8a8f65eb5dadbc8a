package broker

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FuzzRequest sends bytes to a proxy. Whatever they are, the API sees at most one request, that a judge has passed, with our
// credential and no other. HOST and TOKEN stand for what a caller knows.
func FuzzRequest(f *testing.F) {
	const head = " HTTP/1.1\r\nHost: HOST\r\nX-Api-Key: TOKEN\r\n"
	for _, seed := range []string{
		"GET /r/get" + head + "\r\n",
		"GET /r/get?key=TOKEN HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET /r/many/a/b%20c" + head + "Authorization: Bearer evil\r\n\r\n",
		"POST /r/post" + head + "Content-Length: 3\r\n\r\nabcGET /r/get" + head + "\r\n",
		"POST /r/post" + head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Fine: t\r\n\r\n",
		"POST /r/post" + head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /r/get" + head + "\r\n",
		"POST /r/post" + head + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
		"POST /r/post" + head + "Expect: 100-continue\r\nX-Fine: 1\r\nContent-Length: 3\r\n\r\nabc",
		"GET http://HOST/r/get" + head + "\r\n",
		"CONNECT HOST" + head + "\r\n",
		"GET /r/get" + head + "Connection: X-Fine, Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"GET /r/many/%2e%2e/x" + head + "Origin: null\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	a := newAPI(f, true, nil)
	r := start(f, a)
	late := 0 // requests that were cut, and may reach the API while another one is looked at
	f.Fuzz(func(t *testing.T, b []byte) {
		request := strings.NewReplacer("HOST", r.addr, "TOKEN", token).Replace(string(b))
		conn, err := net.Dial("tcp", r.addr)
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Skip(err) // no port is left: too many connections were closed of late
		}
		if err != nil { // a proxy that has died would pass else
			t.Fatal(err)
		}
		defer conn.Close()
		ended := make(chan struct{})
		go func() {
			io.Copy(io.Discard, conn)
			close(ended)
		}()
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, request)
		cut := false
		select {
		case <-ended:
		case <-time.After(20 * time.Millisecond): // it waits for more
			cut = true
			conn.(*net.TCPConn).CloseWrite()
			<-ended
		}
		a.mu.Lock()
		got := a.got
		a.got = nil
		a.mu.Unlock()
		most := late
		if strings.Contains(request, token) {
			most++
		}
		if len(got) > most {
			t.Fatalf("%d requests reached the API", len(got))
		}
		if late = min(late, most-len(got)); cut {
			late = most - len(got)
		}
		for _, q := range got {
			if fault := unjudged(q); fault != "" {
				t.Errorf("the API got %s %s %v: %s", q.Method, q.RequestURI, q.Header, fault)
			}
		}
	})
}

// unjudged says what no judge can have passed.
func unjudged(q *http.Request) string {
	path, query, _ := strings.Cut(q.RequestURI, "?")
	switch {
	case !slices.Equal(q.Header["X-Api-Key"], []string{canary}):
		return "another credential"
	case query != "":
		return "a query"
	case q.Host != "api.test":
		return "another host"
	case q.Method == "POST" && path == "/base/post":
	case q.Method == "GET" && (path == "/base/get" || strings.HasPrefix(path, "/base/many/")) && q.ContentLength <= 0:
	default:
		return "another endpoint"
	}
	if strings.Contains(path, "/.") || strings.Contains(strings.ToLower(path), "%2e") || strings.Contains(path[1:], "//") {
		return "a path that can be read in two ways"
	}
	known := []string{"Accept", "Accept-Encoding", "Accept-Language", "Content-Length", "Content-Type", "Idempotency-Key",
		"User-Agent", "X-Api-Key", "X-Fine", "X-Request-Id"}
	for name := range q.Header {
		if !slices.Contains(known, name) && !strings.HasPrefix(name, "X-List-") {
			return "header " + name
		}
	}
	return ""
}
