package onward

import (
	"context"
	"crypto/x509"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestConnections: over HTTP/1, a connection that has carried a body carries nothing else, and the server is told so,
// however it answers. What has none goes over connections that stay. Over HTTP/2, all of a kind share one.
func TestConnections(t *testing.T) {
	for _, protocol := range []string{"http", "https", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			var mu sync.Mutex
			by, closed := map[string][]string{}, map[string]bool{}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				by[r.RemoteAddr] = append(by[r.RemoteAddr], r.Method+" "+r.URL.Path)
				closed[r.RemoteAddr] = closed[r.RemoteAddr] || r.Close || len(r.Header["Connection"]) > 0
				mu.Unlock()
				switch r.URL.Path {
				case "/read":
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, "all")
				case "/hints":
					w.WriteHeader(http.StatusEarlyHints)
					_, _ = io.WriteString(w, "hinted")
				case "/204":
					w.WriteHeader(http.StatusNoContent)
				case "/304":
					w.WriteHeader(http.StatusNotModified)
				case "/early":
					http.Error(w, "too much", http.StatusRequestEntityTooLarge)
				}
			}))
			s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			s.EnableHTTP2 = protocol == "h2"
			scheme := "https"
			if protocol == "http" {
				scheme = "http"
				s.Start()
			} else {
				s.StartTLS()
			}
			defer s.Close()
			roots := x509.NewCertPool()
			if s.Certificate() != nil {
				roots.AddCert(s.Certificate())
			}
			tr := NewTransport(roots, func(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
			})
			tr.Tune(func(t *http.Transport) { t.MaxIdleConnsPerHost = 8 })
			defer tr.CloseIdleConnections()
			ask := func(method, path string, body io.Reader, expect bool) {
				r, err := http.NewRequest(method, scheme+"://example.com"+path, body)
				if err != nil {
					t.Fatal(err)
				}
				if expect {
					r.Header.Set("Expect", "100-continue")
				}
				resp, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatalf("%s %s: %v", method, path, err)
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			n := 0
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "REPORT"} {
				for _, path := range []string{"/read", "/hints", "/204", "/304", "/early", "/empty"} {
					ask(method, path, strings.NewReader("a body"), false)
					ask(method, path, io.MultiReader(strings.NewReader("in chunks")), false)
					ask(method, path, io.MultiReader(), false) // chunked, and empty
					ask(method, path, strings.NewReader("a body"), true)
					ask(method, path+"/none", nil, false)
					ask(method, path+"/none", http.NoBody, false)
					n += 4
				}
			}
			mu.Lock()
			defer mu.Unlock()
			with, without := 0, 0
			for addr, asked := range by {
				bodiless := slices.IndexFunc(asked, func(s string) bool { return !strings.HasSuffix(s, "/none") }) < 0
				if bodiless {
					without++
				} else {
					with++
				}
				if protocol != "h2" && !bodiless && len(asked) > 1 {
					t.Errorf("one connection carried %q", asked)
				}
				if closed[addr] != (protocol != "h2" && !bodiless) {
					t.Errorf("told to close: %t, by a connection that carried %q", closed[addr], asked)
				}
			}
			if want := map[bool]int{true: 1, false: n}[protocol == "h2"]; with != want || without != 1 {
				t.Errorf("%d connections for what has a body, and %d for what has none; want %d and 1", with, without, want)
			}
		})
	}
}

// TestClients: whatever else asks by HTTP uses Transport.
func TestClients(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	own := filepath.Join("pkg", "broker", "onward", "transport.go")
	seen := false
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == filepath.Join("internal", "lab") || rel == "test" || strings.HasPrefix(d.Name(), ".") && rel != "."):
			return filepath.SkipDir
		case !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, makes := range []string{"http.Transport{", "http.Client{", "http.DefaultClient", "http.DefaultTransport", "http.Get(", "http.Post(", "http2.Transport{"} {
			if strings.Contains(string(text), makes) {
				if seen = seen || rel == own; rel != own {
					t.Errorf("%s: %s", rel, makes)
				}
			}
		}
		return err
	})
	if err != nil || !seen {
		t.Errorf("%s is seen: %v, %v", own, seen, err)
	}
}

// TestWide: a request over HTTP/2 has a wide window from its beginning to the end of its answer. Where there is none left,
// it has a narrow one.
func TestWide(t *testing.T) {
	var mu sync.Mutex
	over := map[string]int{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		over[r.RemoteAddr]++
		mu.Unlock()
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	tr := NewTransport(roots, func(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	})
	defer tr.CloseIdleConnections()
	ask := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var all []*http.Response
	for range maxWide + 5 {
		all = append(all, ask())
	}
	all[0].Body.Close()
	all[0].Body.Close()
	all = append(all, ask(), ask())
	mu.Lock()
	counts := slices.Sorted(maps.Values(over))
	mu.Unlock()
	if !slices.Equal(counts, []int{5 + 1, maxWide + 1}) {
		t.Errorf("requests over each connection: %v", counts)
	}
	for _, resp := range all {
		resp.Body.Close()
	}
	if len(wide) != 0 {
		t.Errorf("%d are not given back", len(wide))
	}
}
