package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// TestProxies: a request goes by each kind of proxy, which is asked for a name as a name.
func TestProxies(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for name, serve := range map[string]func(net.Conn) (asked string, err error){"http": serveCONNECT, "socks5h": serveSOCKS} {
		asked := make(chan string, 2)
		at := proxyServer(t, func(c net.Conn) error {
			to, err := serve(c)
			if err != nil {
				return err
			}
			asked <- to
			return splice(c, server.Listener.Addr().String())
		})
		t.Setenv("TEST_PROXY", name+"://user:secret@"+at)
		want := "name.test:" + port
		out, err := fetch([]string{"-insecure", "-proxy", "env:TEST_PROXY", "https://" + want + "/"})
		if err != nil || out["body"] != want || <-asked != want {
			t.Errorf("%s: %v %v", name, out, err)
		}
		out, err = tcp([]string{"-proxy", "env:TEST_PROXY", "-send", "GET / HTTP/1.1\r\n\r\n", server.Listener.Addr().String()})
		if err != nil || <-asked != server.Listener.Addr().String() {
			t.Errorf("%s: %v %v", name, out, err)
		}
	}
}

// TestProxyRefuses: what a proxy refuses did not succeed.
func TestProxyRefuses(t *testing.T) {
	at := proxyServer(t, func(c net.Conn) error {
		_, err := io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return err
	})
	if out, err := tcp([]string{"-proxy", "http://" + at, "name.test:443"}); err == nil {
		t.Error(out)
	}
	if _, err := tcp([]string{"-proxy", "env:TEST_NO_PROXY", "name.test:443"}); err == nil {
		t.Error("without a proxy it went by one")
	}
}

// TestProxyBare: what is sent to the proxy itself has the password in each request, and the URL of another in full.
func TestProxyBare(t *testing.T) {
	got := make(chan string, 2)
	at := proxyServer(t, func(c net.Conn) error {
		buf := make([]byte, 1<<10)
		n, err := c.Read(buf)
		got <- string(buf[:n])
		_, werr := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if err == nil {
			err = werr
		}
		return err
	})
	if _, err := tcp([]string{"-proxy", "http://a:b@" + at, "-bare", "-esc", `GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n`, "192.0.2.1:80"}); err != nil {
		t.Fatal(err)
	}
	if text := <-got; strings.Count(text, "Proxy-Authorization: Basic YTpi\r\n") != 2 {
		t.Errorf("%q", text)
	}
	if _, err := fetch([]string{"-proxy", "http://" + at, "http://name.test/x"}); err != nil {
		t.Fatal(err)
	}
	if text := <-got; !strings.HasPrefix(text, "GET http://name.test/x HTTP/1.1\r\n") {
		t.Errorf("%q", text)
	}
}

func proxyServer(t *testing.T, serve func(net.Conn) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if err := serve(c); err != nil {
					t.Error(err)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func splice(c net.Conn, to string) error {
	far, err := net.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer far.Close()
	go func() {
		defer far.Close()
		_, _ = io.Copy(far, c)
	}()
	_, _ = io.Copy(c, far)
	return nil
}

func serveCONNECT(c net.Conn) (string, error) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return "", err
	}
	if user, password, ok := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth(); !ok || user != "user" || password != "secret" {
		return "", fmt.Errorf("no password: %v", r.Header)
	}
	_, err = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	return r.RequestURI, err
}

func serveSOCKS(c net.Conn) (string, error) {
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(c, b)
		return b
	}
	read(int(read(2)[1])) // the ways to authenticate, of which one is taken
	_, _ = c.Write([]byte{5, 2})
	if login := read(2 + 4 + 1 + 6); string(login) != "\x01\x04user\x06secret" {
		return "", fmt.Errorf("login %q", login)
	}
	_, _ = c.Write([]byte{1, 0})
	host := ""
	switch kind := read(4)[3]; kind {
	case 1:
		host = netip.AddrFrom4([4]byte(read(4))).String()
	case 3:
		host = string(read(int(read(1)[0])))
	default:
		return "", fmt.Errorf("an address of kind %d", kind)
	}
	port := binary.BigEndian.Uint16(read(2))
	_, err := c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return net.JoinHostPort(host, fmt.Sprint(port)), err
}
