package inspect

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestProxy: plain HTTP goes to a proxy by whole URLs, each request of a connection as it was judged, and each with the
// credential. What a client says to a proxy does not go on. When there is no proxy any more, no connection to it is taken
// for one to the server.
func TestProxy(t *testing.T) {
	var mu sync.Mutex
	is, from := true, map[string][]string{}
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		from[q.RemoteAddr] = append(from[q.RemoteAddr], fmt.Sprintf("%s %s host=%s shown=%q hops=%q", q.Method, q.RequestURI, q.Host, q.Header["Proxy-Authorization"], q.Header["Max-Forwards"]))
		switch q.URL.Path {
		case "/who":
			w.WriteHeader(http.StatusProxyAuthRequired)
		case "/page":
			w.Header().Set("X-Squid-Error", "ERR_DNS_FAIL 0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "it says")
	}, func(s *setting) {
		s.port, s.plain = 80, true
		s.Inspected = []route.Inspected{{Name: name, Port: 80, Plain: true, Allow: []route.Request{{Methods: []string{"GET", "OPTIONS", "POST"}, Rule: "p:1"}}}}
		s.proxy = func() (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			return "Bearer " + canary, is
		}
	})
	c, err := net.Dial("tcp", r.front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	hear := func(method string) (int, string) {
		t.Helper()
		resp, err := http.ReadResponse(answers, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	// At once, with one between that nobody allows.
	_, _ = io.WriteString(c, "GET /one?x=%20 HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: Basic mine\r\nMax-Forwards: 0\r\n\r\n"+
		"DELETE /two HTTP/1.1\r\nHost: api.test\r\n\r\nPOST /three HTTP/1.1\r\nHost: api.test\r\nContent-Length: 4\r\n\r\nbodyGET /who HTTP/1.1\r\nHost: api.test\r\n\r\n")
	for i, want := range []int{200, 403, 200, 403} {
		if status, text := hear("GET"); status != want || i == 3 && (strings.Contains(text, "it says") || !strings.Contains(text, "(407)")) {
			t.Errorf("answer %d is %d %s, want %d", i, status, text, want)
		}
	}
	_, _ = io.WriteString(c, "OPTIONS /page HTTP/1.1\r\nHost: api.test\r\n\r\n")
	if status, text := hear("OPTIONS"); status != 502 || strings.Contains(text, "it says") || !strings.Contains(text, "by the upstream proxy: ") {
		t.Errorf("a page of the proxy's is answered with %d %s", status, text)
	}
	mu.Lock()
	shown := fmt.Sprintf("%q", []string{"Bearer " + canary})
	var got []string
	proxys := map[string]bool{}
	for addr, asked := range from {
		got, proxys[addr] = append(got, asked...), true
	}
	is = false
	mu.Unlock()
	want := []string{"GET http://api.test/one?x=%20", "GET http://api.test/who", "OPTIONS http://api.test/page", "POST http://api.test/three"}
	slices.Sort(got)
	for i := range want {
		want[i] += " host=api.test shown=" + shown + " hops=[]"
	}
	if !slices.Equal(got, want) {
		t.Errorf("the proxy was asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	_, _ = io.WriteString(c, "GET /straight HTTP/1.1\r\nHost: api.test\r\n\r\n")
	if status, _ := hear("GET"); status != 200 {
		t.Errorf("answered with %d", status)
	}
	mu.Lock()
	defer mu.Unlock()
	for addr, asked := range from {
		last := asked[len(asked)-1]
		if strings.Contains(last, "/straight") && (proxys[addr] || last != "GET /straight host=api.test shown=[] hops=[]") {
			t.Errorf("to the server, by a connection to the proxy (%v): %s", proxys[addr], last)
		}
	}
	if len(from) <= len(proxys) {
		t.Error("there is no new connection to the server")
	}
}
