package inspect

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func TestPasses(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Alt-Svc", `h3=":443"`)
			w.Header().Set("X-Answer", "yes")
			w.WriteHeader(201)
			w.Write([]byte("hello"))
		})
		c := r.client(http2)
		got := r.ask(c, "POST", "/a%20b?x=1&y", "body", "X-Asked", "1", "X-Forwarded-Host", "other")
		if got.StatusCode != 201 || got.text != "hello" || got.Header.Get("X-Answer") != "yes" || got.Header["Alt-Svc"] != nil {
			t.Fatal(got.Response, got.text)
		}
		q := r.requests()[0]
		if q.RequestURI != "/a%20b?x=1&y" || q.Host != name || q.Header.Get("X-Asked") != "1" || q.Header["X-Forwarded-Host"] != nil {
			t.Error(q.RequestURI, q.Host, q.Header)
		}
		e := r.event()
		if e.Name != name || e.Port != 443 || e.Rule != "p:1" || e.Method != "POST" || e.Path != "/a%20b" || e.Status != 201 ||
			e.Received != 5 || e.UID != 1000 || e.Refused != "" {
			t.Errorf("%+v", e)
		}
	})
}

func TestRefuses(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		r := start(t, nil, func(s *setting) {
			s.Inspected = any443(route.Request{Methods: []string{"GET"}, Path: "/ok/**", Rule: "p:1"})
		})
		c := r.client(http2)
		for _, q := range []struct {
			method, path string
			status       int
		}{
			{"GET", "/ok/x", 200}, {"POST", "/ok/x", 403}, {"GET", "/no", 403}, {"GET", "/ok/../no", 403}, {"GET", "/ok/%2e%2e/no", 403},
			{"DELETE", "/ok/", 403}, {"get", "/ok/x", 403},
		} {
			got := r.ask(c, q.method, q.path, "")
			if got.StatusCode != q.status || q.status == 403 && !strings.Contains(got.text, "refused by agent-init") {
				t.Error(q, got.StatusCode, got.text)
			}
			if e := r.event(); (e.Refused != "") != (q.status != 200) {
				t.Errorf("%v: %+v", q, e)
			}
		}
		if n := len(r.requests()); n != 1 {
			t.Errorf("%d requests went on", n)
		}
	})
}
