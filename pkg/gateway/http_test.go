package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// web serves HTTP behind the gate.
func (r *rig) web(h http.HandlerFunc) {
	s := &http.Server{Handler: h}
	l := listen(r.t)
	r.behind(siteWeb, l)
	go s.Serve(l)
	r.t.Cleanup(func() { s.Close() })
}

// client is an HTTP client whose connections go through the gate.
func (r *rig) client() *http.Client {
	tr := &http.Transport{
		DialContext:           func(context.Context, string, string) (net.Conn, error) { return r.connect(siteWeb), nil },
		ExpectContinueTimeout: waitTime, MaxConnsPerHost: 1,
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func get(t testing.TB, c *http.Client, q *http.Request) (*http.Response, string) {
	t.Helper()
	a, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, string(b)
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	q, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestHTTPPasses(t *testing.T) {
	r := newRig(t, nil)
	r.web(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		if q.URL.Path == "/early" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		if q.URL.Path == "/none" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if q.URL.Path == "/long" {
			w.Write(make([]byte, 1<<20))
			return
		}
		fmt.Fprintf(w, "%s %s %d", q.Method, q.Host, len(b))
		if q.URL.Path == "/chunked" {
			w.(http.Flusher).Flush()
			fmt.Fprint(w, " more")
		}
	})
	c := r.client()
	big := strings.Repeat("x", 1<<20)
	steps := []struct {
		method, url, body, want string
		change                  func(*http.Request)
	}{
		{method: "GET", url: "http://ok.test/", want: "GET ok.test 0"},
		{method: "GET", url: "http://OK.test:80/", want: "GET OK.test:80 0"},
		{method: "GET", url: "http://ok.test//evil.test/", want: "GET ok.test 0"},
		{method: "HEAD", url: "http://ok.test/", want: ""},
		{method: "GET", url: "http://ok.test/none", want: ""},
		{method: "GET", url: "http://ok.test/early", want: "GET ok.test 0"},
		{method: "GET", url: "http://ok.test/chunked", want: "GET ok.test 0 more"},
		{method: "GET", url: "http://ok.test/long", want: strings.Repeat("\x00", 1<<20)},
		{method: "POST", url: "http://ok.test/", body: big, want: "POST ok.test 1048576"},
		{method: "POST", url: "http://ok.test/", body: "chunks", want: "POST ok.test 6", change: func(q *http.Request) { q.ContentLength = -1 }},
		{method: "PUT", url: "http://ok.test/", body: big, want: "PUT ok.test 1048576", change: func(q *http.Request) { q.ContentLength = -1 }},
		{method: "POST", url: "http://ok.test/", body: "wait", want: "POST ok.test 4", change: func(q *http.Request) { q.Header.Set("Expect", "100-continue") }},
		{method: "GET", url: "http://a.wild.test/", want: "GET a.wild.test 0"},
	}
	for _, tt := range steps {
		var body io.Reader
		if tt.body != "" {
			body = strings.NewReader(tt.body)
		}
		q := newRequest(t, tt.method, tt.url, body)
		if tt.change != nil {
			tt.change(q)
		}
		if a, got := get(t, c, q); got != tt.want {
			t.Errorf("%s %s: %s, %d bytes %.50q", tt.method, tt.url, a.Status, len(got), got)
		}
	}
	// http.Transport keeps one connection for each host.
	c.CloseIdleConnections()
	for i := range steps {
		if e := r.event(audit.HTTP, i); e.Verdict != audit.Allow || !strings.HasPrefix(e.Reason, steps[i].method+": ") || e.Rule == "" {
			t.Errorf("recorded %+v", e)
		}
	}
	if allowed, denied := r.count(audit.HTTP, audit.Allow, ""), r.count(audit.HTTP, audit.Deny, ""); allowed != len(steps) || denied != 0 {
		t.Errorf("%d allowed, %d denied", allowed, denied)
	}
}

// raw sends b on a new connection and returns all that comes back.
func (r *rig) raw(b string) string {
	r.t.Helper()
	c := r.connect(siteWeb)
	io.WriteString(c, b)
	got, _ := io.ReadAll(c)
	c.Close()
	return string(got)
}

func TestHTTPRefusalExplains(t *testing.T) {
	r := newRig(t, nil)
	for i, tt := range []struct{ host, why, line, rule, hint string }{
		{"evil.test", "not in the allowlist", "evil.test", "", "not in the allowlist: agent-init explain evil.test"},
		{"tls.test", "the policy allows it on other ports only", "tls.test:80", "", "not in the allowlist: agent-init explain tls.test"},
		{"no.wild.test", "denied by the policy", "", "allowlist.txt:6", "denied by allowlist.txt:6: agent-init explain no.wild.test"},
		{"away.test", refusedLease.Error(), "", "allowlist.txt:3", ""},
		{"192.0.2.1", "it is an address, and here connections pass by name", "192.0.2.1:80", "", ""},
		{"192.0.2.1.5", "a name can't end in a number: it would be read as an address", "", "", ""},
	} {
		got := r.raw("GET / HTTP/1.1\r\nHost: " + tt.host + "\r\n\r\n")
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		want := "refused by agent-init\nhost: " + tt.host + "\nwhy: " + tt.why + "\n"
		if tt.rule != "" {
			want += "rule: " + tt.rule + "\n"
		}
		if tt.line != "" {
			want += "allowlist line: " + tt.line + "\n"
		}
		if tt.hint != "" {
			want += "hint: " + tt.hint + "\n"
		}
		if !strings.HasPrefix(head, "HTTP/1.1 403 ") || !strings.Contains(head, "\r\nConnection: close") || body != want {
			t.Errorf("%s: %s\n\n%s\nwant %s", tt.host, head, body, want)
		}
		wantReason(t, r.event(audit.Connect, 2*i), audit.Deny, tt.why)
		wantReason(t, r.event(audit.HTTP, 2*i), audit.Deny, "GET: "+tt.why)
		got = r.raw("GET / HTTP/1.1\r\nHost: " + tt.host + "\r\nAccept: text/html, application/json;q=0.5\r\n\r\n")
		_, body, _ = strings.Cut(got, "\r\n\r\n")
		var e explanation
		if err := json.Unmarshal([]byte(body), &e); err != nil || e.Host != tt.host || e.Why != tt.why || e.Line != tt.line || e.Hint != tt.hint || e.Rule != tt.rule || e.Port != 80 {
			t.Errorf("%s: %v %+v", tt.host, err, e)
		}
		r.event(audit.Connect, 2*i+1)
	}
	if got := r.raw("HEAD / HTTP/1.1\r\nHost: evil.test\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("HEAD: %q", got)
	}
	if n := r.dials(); n != 0 {
		t.Errorf("%d connections were made onward", n)
	}
}

// TestHTTPPipelining: every request is judged, and a refusal waits its turn.
func TestHTTPPipelining(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	r.web(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			<-release
		}
		fmt.Fprintf(w, "answer for %s%s", q.Host, q.URL.Path)
	})
	c := r.connect(siteWeb)
	for _, line := range []string{"ok.test /slow", "two.test /b", "ok.test /c", "evil.test /d", "ok.test /e"} {
		host, path, _ := strings.Cut(line, " ")
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
	}
	wantReason(t, r.event(audit.HTTP, 3), audit.Deny, "GET: not in the allowlist")
	close(release)
	b := bufio.NewReader(c)
	for _, want := range []string{"answer for ok.test/slow", "answer for two.test/b", "answer for ok.test/c"} {
		a, err := http.ReadResponse(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(a.Body); string(body) != want {
			t.Errorf("%q, %v, want %q", body, err, want)
		}
	}
	a, err := http.ReadResponse(b, nil)
	if err != nil || a.StatusCode != http.StatusForbidden || !a.Close {
		t.Fatalf("%v, %v", a, err)
	}
	body, _ := io.ReadAll(a.Body)
	if !strings.Contains(string(body), "allowlist line: evil.test") {
		t.Errorf("%q", body)
	}
	if _, err := b.ReadByte(); err != io.EOF {
		t.Errorf("behind the refusal: %v", err)
	}
	c.Close()
	wantReason(t, r.event(audit.Connect, 0), audit.Allow, "closed after a refused request")
}

// script serves one connection with canned answers, one for each request head.
func (r *rig) script(answers ...string) chan string {
	got := make(chan string, 1)
	r.server(siteWeb, func(c *net.TCPConn) {
		b := bufio.NewReader(c)
		var all strings.Builder
		defer func() { got <- all.String() }()
		for _, a := range answers {
			for {
				line, err := b.ReadString('\n')
				all.WriteString(line)
				if err != nil {
					return
				}
				if line == "\r\n" {
					break
				}
			}
			io.WriteString(c, a)
		}
		c.CloseWrite()
		rest, _ := io.ReadAll(b)
		all.Write(rest)
	})
	return got
}

// TestHTTPRefusalOnlyBetweenMessages: where it can't be known that a response
// is over, the refusal of a later request is no answer at all.
func TestHTTPRefusalOnlyBetweenMessages(t *testing.T) {
	ask := "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"
	deny := "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	for _, tt := range []struct {
		label, answer string
		refused       bool // the client is told
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\nX: y\r\n\r\n", true},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", true},
		{"not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", true},
		{"early hints", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true},
		{"no length", "HTTP/1.1 200 OK\r\n\r\nhi", false},
		{"both lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", false},
		{"bad chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", false},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", false},
		{"http/0.9", "hello\r\n\r\n", false},
	} {
		t.Run(tt.label, func(t *testing.T) {
			r := newRig(t, nil)
			got := r.script(tt.answer, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL")
			c := r.connect(siteWeb)
			io.WriteString(c, ask+deny)
			b := make([]byte, len(tt.answer))
			if _, err := io.ReadFull(c, b); err != nil || string(b) != tt.answer {
				t.Fatalf("%q, %v", b, err)
			}
			if tt.refused {
				rest, err := io.ReadAll(c)
				if err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 403 ") {
					t.Errorf("%q, %v", rest, err)
				}
			} else {
				c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%d bytes, %v follow a response that has no end", n, err)
				}
			}
			c.Close()
			if seen := <-got; strings.Contains(seen, "evil") {
				t.Errorf("the server got %q", seen)
			}
		})
	}
}

// TestHTTPAfterTheLastResponse: no request passes behind a response without an
// end, nor after one that nobody asked for.
func TestHTTPAfterTheLastResponse(t *testing.T) {
	ask := "GET /%d HTTP/1.1\r\nHost: ok.test\r\n\r\n"
	for label, answer := range map[string]string{
		"no end":  "HTTP/1.1 200 OK\r\n\r\nhi",
		"unasked": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 408 Request Timeout\r\n\r\n",
	} {
		t.Run(label, func(t *testing.T) {
			r := newRig(t, nil)
			got := make(chan string, 1)
			r.server(siteWeb, func(c *net.TCPConn) {
				textproto.NewReader(bufio.NewReader(c)).ReadLine()
				io.WriteString(c, answer)
				rest, _ := io.ReadAll(c)
				got <- string(rest)
			})
			c := r.connect(siteWeb)
			fmt.Fprintf(c, ask, 1)
			io.ReadFull(c, make([]byte, len(answer)))
			fmt.Fprintf(c, ask, 2)
			r.event(audit.HTTP, 1)
			c.Close()
			if s := <-got; strings.Contains(s, "/2") {
				t.Errorf("the server got %q", s)
			}
		})
	}
}

func TestHTTPSwitchUnasked(t *testing.T) {
	r := newRig(t, nil)
	r.script("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
	r.refused(siteWeb, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedSwitch.Error())
}

// TestHTTPExpect: the gate answers, and the server never hears of it.
func TestHTTPExpect(t *testing.T) {
	r := newRig(t, nil)
	got := r.script("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	c := r.connect(siteWeb)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: ok.test\r\neXpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	b := bufio.NewReader(c)
	if line, err := b.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	io.WriteString(c, "body")
	c.CloseWrite()
	io.ReadAll(b)
	if s := <-got; s != "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody" {
		t.Errorf("the server got %q", s)
	}
}

// TestE50Chunks: a malformed body ends the connection; nothing of what was not
// understood is passed on.
func TestE50Chunks(t *testing.T) {
	head := "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, body := range []string{
		"5\nEVILx\r\n0\r\n\r\n", "5 \r\nEVILx\r\n0\r\n\r\n", "0x5\r\nEVILx\r\n", "+5\r\nEVILx\r\n", "\r\nEVIL", "g\r\nEVIL",
		"5;a\rb\r\nEVILx\r\n", "5;x /EVIL HTTP/1.1\r\nhello\r\n", "5 ;x\r\nEVILx\r\n", "5;x\t=EVIL\r\n", "5;x=\" /EVIL\"\r\nhello\r\n", "5;x=/EVIL\r\nhello\r\n", "5;a\x00\r\nEVIL", "1000000000000000\r\nEVIL", "5;" + strings.Repeat("a", maxChunkLine) + "\r\nEVIL",
		"0\r\nHost: EVIL\r\n\r\n", "0\r\nContent-Length: 5\r\nEVIL: x\r\n\r\n", "0\r\n EVIL\r\n\r\n",
		"0\r\nX: " + strings.Repeat("EVIL", maxTrailer/4) + "\r\n\r\n", "2\r\nabEVIL\r\n0\r\n\r\n", "2\r\nab\nEVIL\r\n",
		strings.Repeat("1;"+strings.Repeat("a", 200)+"\r\nx\r\n", 30) + "4\r\nEVIL\r\n0\r\n\r\n",
	} {
		var out strings.Builder
		err := forwardBody(sourceOf([]byte(body)), &out, chunked)
		if _, ok := err.(*refusal); !ok || strings.Contains(out.String(), "EVIL") {
			t.Errorf("%.60q: %v, passed on %q", body, err, out.String())
		}
	}
	r := newRig(t, nil)
	got := make(chan string, 1)
	r.server(siteWeb, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	c := r.connect(siteWeb)
	io.WriteString(c, head+"2\r\nok\r\n5 \r\nEVILx\r\n0\r\n\r\n")
	wantReset(t, c)
	if s := <-got; strings.Contains(s, "EVIL") {
		t.Errorf("the server got %q", s)
	}
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedChunk.Error())
}

// TestHTTPStream: a response that comes bit by bit is passed on bit by bit.
func TestHTTPStream(t *testing.T) {
	r := newRig(t, nil)
	next := make(chan struct{})
	r.web(func(w http.ResponseWriter, q *http.Request) {
		for i := range 100 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	a, err := r.client().Do(newRequest(t, "GET", "http://ok.test/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b := bufio.NewReader(a.Body)
	for i := range 100 {
		if line, err := b.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		b.ReadString('\n')
		next <- struct{}{}
	}
}

// TestHTTPEarlyAnswer: a server that answers an upload early and closes is heard.
func TestHTTPEarlyAnswer(t *testing.T) {
	r := newRig(t, nil)
	answer := "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	r.server(siteWeb, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 600<<10))
		io.WriteString(c, answer)
		c.CloseWrite()
	})
	c := r.connect(siteWeb)
	go func() {
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 1000000000\r\n\r\n")
		block := make([]byte, 1<<20)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}()
	b := make([]byte, len(answer))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != answer {
		t.Errorf("%q, %v", b, err)
	}
}

func TestHTTPSlowHead(t *testing.T) {
	r := newRig(t, func(c *settings) { c.limits.head = 100 * time.Millisecond })
	r.web(func(http.ResponseWriter, *http.Request) {})
	r.refused(siteWeb, "GET / HTTP/1.1\r\n")
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedTimeout.Error())

	// A later head has as long, from its first byte; idleness before it is free.
	c := r.connect(siteWeb)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	b := bufio.NewReader(c)
	if _, err := http.ReadResponse(b, nil); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := b.ReadByte(); err == nil || !err.(net.Error).Timeout() {
		t.Fatalf("an idle connection: %v", err)
	}
	c.SetReadDeadline(time.Now().Add(waitTime))
	io.WriteString(c, "G")
	wantReset(t, c)
}
