package broker

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/registry"
	"github.com/agent-init/agent-init/pkg/route"
)

// packument is what a registry says of a package, with more of it at the end.
func packument(more string) string {
	old := time.Now().AddDate(0, 0, -9).UTC().Format(time.RFC3339)
	return `{"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"dist":{"tarball":"https://r.test/p/-/p-1.0.0.tgz"}}},` +
		`"time":{"1.0.0":"` + old + `"},"readme":"` + more + `"}`
}

// startNPM has a proxy with a route to a registry that answers so, with a credential.
func startNPM(t *testing.T, answer http.HandlerFunc, change ...func(*setting)) (*rig, *api) {
	a := newAPI(t, true, answer)
	return start(t, a, append([]func(*setting){func(s *setting) {
		rt, _ := route.Builtin("npm")
		rt.Name, rt.To, rt.Keyless, rt.Packages.MinAge = "r", "https://api.test/base/", false, 72*time.Hour
		s.Routes = []route.Route{rt}
	}}, change...)...), a
}

// TestRegistry holds that documents are asked for and handed on, that files come as they are, and that both get the
// credential of the route and nothing of the caller's.
func TestRegistry(t *testing.T) {
	r, a := startNPM(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.RequestURI {
		case "/base/p", "/base/@s%2fp":
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Set-Cookie", "x=y")
			packed := gzip.NewWriter(w)
			io.WriteString(packed, strings.ReplaceAll(packument(strings.Repeat("long ", 1<<19)), "/p/-/", strings.ReplaceAll(q.URL.Path[5:], "%2f", "/")+"/-/"))
			packed.Close()
		case "/base/p/-/p-1.0.0.tgz":
			io.WriteString(w, "a tarball")
		default:
			http.Error(w, "none", 404)
		}
	})
	got := r.ask("GET", "/r/@s%2fp", "", "Cookie", "c=d")
	if got.StatusCode != 200 || len(got.text) < 5<<19 || !strings.Contains(got.text, `"tarball":"http://`+r.addr+`/r/@s/p/-/p-1.0.0.tgz"`) || got.Header["Set-Cookie"] != nil {
		t.Fatalf("answered %d %.300s", got.StatusCode, got.text)
	}
	if e := r.event(); e.Status != 200 || e.Received != int64(len(got.text)) || e.Path != "/@s%2fp" {
		t.Errorf("the event is %+v", e)
	}
	if got := r.ask("GET", "/r/p/-/p-1.0.0.tgz", ""); got.StatusCode != 200 || got.text != "a tarball" {
		t.Errorf("the file: %d %s", got.StatusCode, got.text)
	}
	if got := r.ask("GET", "/r/p/-/p-2.0.0.tgz", ""); got.StatusCode != 404 || !strings.Contains(got.text, `{"error":"refused by agent-init: no version of p has`) {
		t.Errorf("a file that is none: %d %s", got.StatusCode, got.text)
	}
	if got := r.ask("GET", "/r/none", ""); got.StatusCode != 404 || got.text != "none\n" {
		t.Errorf("a package that is none: %d %s", got.StatusCode, got.text)
	}
	for _, q := range a.requests() {
		if q.Header.Get("Authorization") != "Bearer "+canary || q.Header.Get("Cookie") != "" || q.Header.Get("X-Api-Key") != "" {
			t.Errorf("%s arrived with %v", q.RequestURI, q.Header)
		}
	}
	for _, method := range []string{"PUT", "POST", "DELETE", "PATCH"} {
		if got := r.ask(method, "/r/p", ""); got.StatusCode != 403 {
			t.Errorf("%s: %d %s", method, got.StatusCode, got.text)
		}
	}
}

// TestRegistryFaults holds that what can't be read whole is no answer.
func TestRegistryFaults(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"a redirect": {func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "https://evil.example/", http.StatusFound)
		}, "api.test answered with status 302"},
		"no JSON": {func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "<html>") }, "can't be read"},
		"half":    {func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, packument("")[:100]) }, "can't be read"},
		"a cut": {func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "{")
		}, "did not come whole"},
		"no gzip": {func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "{}")
		}, "can't be unpacked"},
		"another way": {func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "{}")
		}, "not asked for"},
		"a bomb": {func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			var packed bytes.Buffer // a member of many (RFC 1952, section 2.2)
			z := gzip.NewWriter(&packed)
			z.Write(make([]byte, 1<<20))
			z.Close()
			for range registry.MaxDocument>>20 + 1 {
				w.Write(packed.Bytes())
			}
		}, "more than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := startNPM(t, c.answer)
			for _, path := range []string{"/r/p", "/r/p/-/p-1.0.0.tgz"} {
				status := 403
				if name == "a cut" { // it may come whole the next time
					status = 502
				}
				if got := r.ask("GET", path, ""); got.StatusCode != status || !strings.Contains(got.text, c.says) {
					t.Errorf("%s: %d %s, without %q", path, got.StatusCode, got.text, c.says)
				}
			}
		})
	}
}

// TestRegistryRoom holds that many who ask for large documents at once wait for each other, and all get theirs.
func TestRegistryRoom(t *testing.T) {
	const size = maxDocuments / 16
	r, _ := startNPM(t, func(w http.ResponseWriter, q *http.Request) {
		io.WriteString(w, packument(strings.Repeat("x", size)))
	})
	r.documents.Idle, r.documents.Patience, r.documents.Longest = time.Hour, time.Hour, time.Hour // a busy machine gives up no sooner
	var all sync.WaitGroup
	for i := range 12 { // of which four have to wait, since a buffer that grows has up to twice its length
		all.Go(func() {
			got := r.ask("GET", "/r/p", "")
			if got.StatusCode != 200 || !strings.HasSuffix(got.text, `x"}`) {
				t.Errorf("%d: %d with %d bytes", i, got.StatusCode, len(got.text))
			}
		})
	}
	all.Wait()
	for until := time.Now().Add(patience); r.documents.Free() != maxDocuments; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("room was not given back")
		}
	}
}

// TestRegistryOpen holds that a route that puts nothing on wants no token where it is open, and one with a credential does
// unless the kernel says who asks.
func TestRegistryOpen(t *testing.T) {
	for _, keyless := range []bool{true, false} {
		r, _ := startNPM(t, func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, packument("")) }, func(s *setting) {
			if s.Routes[0].Keyless = keyless; keyless {
				s.Credentials = nil
			}
		})
		got := r.raw("GET /r/p HTTP/1.1\r\nHost: " + r.addr + "\r\n\r\n")
		if strings.HasPrefix(got, "HTTP/1.1 200") != keyless {
			t.Errorf("without a credential %v: %.200s", keyless, got)
		}
		for _, more := range []string{"Host: evil.example", fmt.Sprintf("Host: %s\r\nOrigin: http://evil.example", r.addr)} {
			if got := r.raw("GET /r/p HTTP/1.1\r\n" + more + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403") {
				t.Errorf("%s: %.200s", more, got)
			}
		}
	}
}
