package inspect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// all runs a test over HTTP/1.1 and HTTP/2 on both sides.
func all(t *testing.T, f func(t *testing.T, two bool, upstream func(*setting))) {
	for _, up := range []bool{false, true} {
		t.Run(map[bool]string{false: "to h1", true: "to h2"}[up], func(t *testing.T) {
			both(t, func(t *testing.T, two bool) { f(t, two, func(s *setting) { s.http1 = !up }) })
		})
	}
}

// large is more than all windows and buffers on the way.
const large = 6 << 20

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestLarge: bodies of any length pass both ways, and are counted.
func TestLarge(t *testing.T) {
	all(t, func(t *testing.T, two bool, upstream func(*setting)) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			n, err := io.Copy(io.Discard, q.Body)
			if n != large || err != nil {
				t.Error("came:", n, err)
			}
			if q.URL.Path == "/known" {
				w.Header().Set("Content-Length", fmt.Sprint(large))
			}
			io.CopyN(w, zeros{}, large)
		}, upstream)
		for _, path := range []string{"/known", "/chunked"} {
			q, _ := http.NewRequest("PUT", "https://"+name+path, io.LimitReader(zeros{}, large))
			if path == "/known" {
				q.ContentLength = large
			}
			if got := r.do(r.client(two), q); len(got.text) != large {
				t.Error(path, len(got.text))
			}
			if e := r.event(); e.Sent != large || e.Received != large {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestEvents: a stream passes as it comes, in both directions at once.
func TestEvents(t *testing.T) {
	all(t, func(t *testing.T, two bool, upstream func(*setting)) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			control := http.NewResponseController(w)
			control.EnableFullDuplex()
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			control.Flush()
			lines := bufio.NewScanner(q.Body)
			for lines.Scan() {
				fmt.Fprintf(w, "data: %s\n", lines.Text())
				control.Flush()
			}
		}, upstream)
		in, out := io.Pipe()
		q, _ := http.NewRequest("POST", "https://"+name+"/", in)
		resp, err := r.client(two).Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for i := range 3 {
			fmt.Fprintln(out, i)
			if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatal(line, err)
			}
		}
		out.Close()
		if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
			t.Error(rest, err)
		}
	})
}

// TestTrailers: what stands behind a body passes, and is judged as what stands before it.
func TestTrailers(t *testing.T) {
	all(t, func(t *testing.T, two bool, upstream func(*setting)) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			io.Copy(io.Discard, q.Body)
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("X-Came", q.Trailer.Get("X-Sum"))
			w.Write([]byte("hello"))
			w.Header().Set("Grpc-Status", "0")
			w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		}, upstream)
		ask := func(name string) answered {
			q, _ := http.NewRequest("POST", "https://api.test/", io.MultiReader(strings.NewReader("body")))
			q.Trailer = http.Header{name: {"42"}}
			return r.do(r.client(two), q)
		}
		got := ask("X-Sum")
		if got.Header.Get("X-Came") != "42" || got.Trailer.Get("Grpc-Status") != "0" || got.Trailer.Get("X-Late") != "1" {
			t.Error(got.Header, got.Trailer)
		}
		if got := ask("X-Http-Method-Override"); got.StatusCode != 403 {
			t.Error("a trailer changes the method:", got.StatusCode)
		}
	})
}

// TestExpect: a server that refuses the head never gets the body.
func TestExpect(t *testing.T) {
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/no" {
			w.WriteHeader(413)
			return
		}
		n, _ := io.Copy(io.Discard, q.Body)
		fmt.Fprint(w, n)
	}, func(s *setting) { s.http1 = true })
	for path, want := range map[string]int{"/no": 413, "/yes": 200} {
		read := false
		q, _ := http.NewRequest("POST", "https://"+name+path, readerFunc(func(b []byte) (int, error) {
			read = true
			return 0, io.EOF
		}))
		q.ContentLength = -1
		q.Header.Set("Expect", "100-continue")
		got := r.do(r.client(false), q)
		if got.StatusCode != want || read != (want == 200) {
			t.Error(path, got.StatusCode, read)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestHints: what a server says before its answer passes.
func TestHints(t *testing.T) {
	all(t, func(t *testing.T, two bool, upstream func(*setting)) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(103)
			w.Header().Del("Link")
			w.Write([]byte("hello"))
		}, upstream)
		var link string
		q, _ := http.NewRequest("GET", "https://"+name+"/", nil)
		q = q.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				link += fmt.Sprint(code, h.Get("Link"))
				return nil
			},
		}))
		got := r.do(r.client(two), q)
		if link != "103</a.css>; rel=preload" || got.text != "hello" || got.Header["Link"] != nil {
			t.Error(link, got.Header, got.text)
		}
	})
}

// TestRest: ranges, answers without a body, redirects and cookies are between the client and its server.
func TestRest(t *testing.T) {
	all(t, func(t *testing.T, two bool, upstream func(*setting)) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Set-Cookie", q.Header.Get("Cookie"))
			w.Header()["Date"] = nil
			switch q.URL.Path {
			case "/away":
				http.Redirect(w, q, "https://other.test/", http.StatusFound)
			case "/none":
				w.WriteHeader(http.StatusNoContent)
			default:
				http.ServeContent(w, q, "a.bin", time.Time{}, strings.NewReader("0123456789"))
			}
		}, upstream)
		c := r.client(two)
		for _, q := range []struct {
			method, path, spans string
			status              int
			text                string
		}{
			{"GET", "/", "bytes=2-4", 206, "234"}, {"GET", "/", "bytes=20-", 416, "invalid range: failed to overlap\n"},
			{"HEAD", "/", "", 200, ""}, {"GET", "/none", "", 204, ""}, {"HEAD", "/away", "", 302, ""},
		} {
			got := r.ask(c, q.method, q.path, "", "Range", q.spans, "Cookie", "a=b")
			if got.StatusCode != q.status || got.text != q.text || got.Header.Get("Set-Cookie") != "a=b" || got.Header["Date"] != nil {
				t.Errorf("%v: %d %q %v", q, got.StatusCode, got.text, got.Header)
			}
			if q.method == "HEAD" && q.path == "/" && got.ContentLength != 10 || q.status == 302 && got.Header.Get("Location") == "" {
				t.Error(q, got.Header, got.ContentLength)
			}
		}
	})
}

func packed(data []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.String()
}

// TestMaxUpload: neither what is sent, nor what it unpacks to, is more than the rule says.
func TestMaxUpload(t *testing.T) {
	all(t, func(t *testing.T, two bool, upstream func(*setting)) {
		rules := any443(
			route.Request{Path: "/some", MaxUpload: 1000, Rule: "p:1"}, route.Request{Path: "/none", MaxUpload: -1, Rule: "p:2"},
		)
		r := start(t, nil, upstream, func(s *setting) { s.Inspected = rules })
		for _, c := range []struct {
			path, body string
			chunked    bool
			coding     string
			status     int
		}{
			{"/some", strings.Repeat("x", 1000), false, "", 200}, {"/some", strings.Repeat("x", 1001), false, "", 413},
			{"/some", strings.Repeat("x", 1000), true, "", 200}, {"/some", strings.Repeat("x", 1001), true, "", 413},
			{"/some", strings.Repeat("x", 1<<20), true, "", 413},
			{"/some", packed(make([]byte, 1000)), false, "gzip", 200}, {"/some", packed(make([]byte, 1001)), false, "gzip", 413},
			{"/some", packed(make([]byte, 1001)), true, "gzip", 413}, {"/some", "x", false, "br", 415},
			{"/some", packed(make([]byte, 100)), false, "gzip, gzip", 415}, {"/some", "x", false, "gzip", 403},
			{"/none", "", false, "", 200}, {"/none", "x", false, "", 403}, {"/none", "x", true, "", 403}, {"/none", "", true, "", 200},
		} {
			q, _ := http.NewRequest("POST", "https://"+name+c.path, strings.NewReader(c.body))
			if c.chunked {
				q, _ = http.NewRequest("POST", "https://"+name+c.path, io.MultiReader(strings.NewReader(c.body)))
			}
			if c.coding != "" {
				q.Header.Set("Content-Encoding", c.coding)
			}
			if got := r.do(r.client(two), q); got.StatusCode != c.status {
				t.Errorf("%s %d %v %s: %d %s", c.path, len(c.body), c.chunked, c.coding, got.StatusCode, got.text)
			}
			if e := r.event(); e.Status != c.status || e.Sent > 1000 {
				t.Errorf("%+v", e)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if slices.ContainsFunc(r.bodies, func(b string) bool { return len(b) > 1000 }) {
			t.Error("too much went on")
		}
	})
}

// TestRefusedWhileItSends: a client that looks for an answer only when it has sent all hears why it is refused.
func TestRefusedWhileItSends(t *testing.T) {
	r := start(t, nil, func(s *setting) {
		s.Inspected = any443(route.Request{Path: "/some", MaxUpload: 1000, Rule: "p:1"})
	})
	const size = 16 << 20 // more than sockets hold
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<20, strings.Repeat("x", 1<<20))
	for head, body := range map[string]string{
		fmt.Sprintf("Content-Length: %d", size): strings.Repeat("x", size),
		"Transfer-Encoding: chunked":            strings.Repeat(chunk, size>>20) + "0\r\n\r\n",
	} {
		c, err := tls.Dial("tcp", r.front.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST /some HTTP/1.1\r\nHost: "+name+"\r\n"+head+"\r\n\r\n"+body); err != nil {
			t.Errorf("%s: %v", head, err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 413 {
			t.Errorf("%s: %v %v", head, resp, err)
		}
		c.Close()
		if e := r.event(); e.Status != 413 {
			t.Errorf("%+v", e)
		}
	}
}

// TestGraphQL: what goes on is what was judged.
func TestGraphQL(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		r := start(t, nil, func(s *setting) {
			s.Inspected = any443(route.Request{Methods: []string{"GET", "POST"}, Path: "/graphql", GraphQL: route.GraphQLQuery, Rule: "p:1"})
		})
		c := r.client(two)
		query, mutation := `{"query":"query { viewer { login } }"}`, `{"query":"mutation { x }"}`
		for _, q := range []struct {
			body, coding string
			status       int
		}{{query, "", 200}, {packed([]byte(query)), "gzip", 200}, {mutation, "", 403}, {packed([]byte(mutation)), "gzip", 403}, {"", "", 403}} {
			headers := []string{"Content-Type", "application/json"}
			if q.coding != "" {
				headers = append(headers, "Content-Encoding", q.coding)
			}
			if got := r.ask(c, "POST", "/graphql", q.body, headers...); got.StatusCode != q.status {
				t.Errorf("%.40q: %d %s", q.body, got.StatusCode, got.text)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.bodies) != 2 || r.bodies[0] != query || r.bodies[1] != query || r.got[1].Header["Content-Encoding"] != nil {
			t.Errorf("went on: %q", r.bodies)
		}
	})
}

// TestHintsBesideContinue: what a server says before its answer and what net/http says by itself don't come over one
// another. Both write to the connection.
func TestHintsBesideContinue(t *testing.T) {
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(100)
		w.Header().Set("Link", "<"+strings.Repeat("a", 3000)+">")
		for range maxHints - 1 {
			w.WriteHeader(103)
		}
		io.Copy(io.Discard, q.Body)
	}, func(s *setting) { s.http1 = true })
	q, _ := http.NewRequest("POST", "https://"+name+"/", strings.NewReader("a body"))
	q.ContentLength = -1
	q.Header.Set("Expect", "100-continue")
	if got := r.do(r.client(false), q); got.StatusCode != 200 {
		t.Error(got.StatusCode, got.text)
	}
}

// TestHintsWithoutEnd: a server that never comes to its answer is not waited for.
func TestHintsWithoutEnd(t *testing.T) {
	all(t, func(t *testing.T, two bool, upstream func(*setting)) {
		ended := make(chan struct{})
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			defer close(ended)
			for q.Context().Err() == nil {
				w.WriteHeader(103)
			}
		}, upstream)
		q, _ := http.NewRequest("GET", "https://"+name+"/", nil)
		if got := r.do(r.client(two), q); got.StatusCode != 502 {
			t.Error(got.StatusCode, got.text)
		}
		<-ended
	})
}
