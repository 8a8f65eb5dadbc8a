package tunnel

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// proxy answers one CONNECT with text, and returns what it was asked.
func proxy(t *testing.T, text string, stays bool) (net.Conn, <-chan string) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	asked := make(chan string, 1)
	go func() {
		r, err := http.ReadRequest(bufio.NewReader(theirs))
		if err != nil {
			asked <- err.Error()
			return
		}
		asked <- r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization")
		io.WriteString(theirs, text)
		if !stays {
			theirs.Close()
		}
	}()
	return ours, asked
}

func TestOpen(t *testing.T) {
	long := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", MaxHead) + "\r\n\r\n"
	for name, tc := range map[string]struct {
		says  string
		stays bool
		want  error
	}{
		"squid":              {"HTTP/1.1 200 Connection established\r\n\r\n", true, nil},
		"mitmproxy":          {"HTTP/1.1 200 Connection established\r\n\r\n", true, nil},
		"no reason":          {"HTTP/1.1 200\r\n\r\n", true, nil},
		"1.0, with fields":   {"HTTP/1.0 204 Yes\r\nVia: x\r\nContent-Length: 10\r\n\r\n", true, nil},
		"refused":            {"HTTP/1.1 403 Forbidden\r\nServer: squid\r\n\r\n<html>", true, Refusal(403)},
		"wants a credential": {"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\n\r\n", true, Refusal(407)},
		"switches":           {"HTTP/1.1 101 Switching\r\n\r\n", true, Refusal(101)},
		"redirects":          {"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", true, Refusal(302)},
		"bytes behind":       {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", true, ErrBehind},
		"too long":           {long, true, ErrLong},
		"ends":               {"HTTP/1.1 200 OK\r\nA: b\r\n", false, ErrEnded},
		"says nothing":       {"", false, ErrEnded},
		"tls":                {"\x15\x03\x03\x00\x02\x02\x28", true, ErrGarbage},
		"http/2":             {"HTTP/2 200\r\n\r\n", true, ErrGarbage},
		"bare lf":            {"HTTP/1.1 200 OK\n\n", true, ErrGarbage},
		"bare cr":            {"HTTP/1.1 200 OK\rX\r\n\r\n", true, ErrGarbage},
		"a nul":              {"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", true, ErrGarbage},
		"no field":           {"HTTP/1.1 200 OK\r\nfield\r\n\r\n", true, ErrGarbage},
		"folded":             {"HTTP/1.1 200 OK\r\n: x\r\n\r\n", true, ErrGarbage},
		"a long status":      {"HTTP/1.1 2000 OK\r\n\r\n", true, ErrGarbage},
		"a sign":             {"HTTP/1.1 +20 OK\r\n\r\n", true, ErrGarbage},
	} {
		t.Run(name, func(t *testing.T) {
			conn, asked := proxy(t, tc.says, tc.stays)
			err := Open(t.Context(), conn, "192.0.2.1:443", "Basic eDp5")
			if !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if got := <-asked; got != "CONNECT 192.0.2.1:443 Basic eDp5" {
				t.Errorf("asked %q", got)
			}
		})
	}
}

// A proxy that never answers is waited for as long as the context says.
func TestOpenHangs(t *testing.T) {
	conn, asked := proxy(t, "HTTP/1.1 200 OK\r\n", true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Open(ctx, conn, "192.0.2.1:443", "") }()
	<-asked
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, ErrLate) {
			t.Errorf("%v, want %v", err, ErrLate)
		}
	case <-time.After(time.Minute):
		t.Fatal("still waiting")
	}
}

// However the answer comes in pieces, what is made of it is the same; and a status that was believed stands in it.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 407 X\r\nProxy-Authenticate: Negotiate\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n\r\nx", "HTTP/1.1 200 OK\n\n", "HTTP/1.1 200\r\n: \r\n\r\n", "\x16\x03\x01",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := answer(strings.NewReader(string(b)))
		one := answer(iotest.OneByteReader(strings.NewReader(string(b))))
		if whole == nil && one != nil || whole != one && !errors.Is(whole, ErrBehind) {
			t.Errorf("%v, and byte by byte %v", whole, one)
		}
		if whole != nil {
			return
		}
		r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(b))), &http.Request{Method: http.MethodConnect})
		if err != nil || r.StatusCode/100 != 2 {
			t.Errorf("net/http does not take it for a yes: %v", err)
		}
	})
}
