package inspect

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestMethodInBody has a server asked for a POST that it would take for a DELETE.
func TestMethodInBody(t *testing.T) {
	const kind = "application/x-www-form-urlencoded"
	both(t, func(t *testing.T, http2 bool) {
		rule := route.Request{Methods: []string{"POST"}, Path: "/ok", Rule: "p:1"}
		r := start(t, nil, func(s *setting) { s.Inspected = any443(rule) })
		c := r.client(http2)
		long := "a=" + strings.Repeat("x", 1<<20)
		for _, q := range []struct {
			body   string
			packed bool
			status int
		}{
			{"a=b", false, 200}, {"a=b&_method=DELETE", false, 403}, {"_method=DELETE&" + long, false, 403}, {long, false, 200}, {long, true, 200},
			{"a=b&_method=DELETE", true, 403}, {"a=_method", true, 200},
		} {
			headers := []string{"Content-Type", kind}
			if q.packed {
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				w.Write([]byte(q.body))
				w.Close()
				q.body = b.String()
				headers = append(headers, "Content-Encoding", "gzip")
			}
			if got := r.ask(c, "POST", "/ok", q.body, headers...); got.StatusCode != q.status {
				t.Errorf("%.40q: %d %s", q.body, got.StatusCode, got.text)
			}
			if e := r.event(); (e.Refused != "") != (q.status != 200) {
				t.Errorf("%.40q: %+v", q.body, e)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, body := range r.bodies {
			if strings.Contains(body, "DELETE") {
				t.Errorf("%.40q went on", body)
			}
		}
		if len(r.bodies) < 4 {
			t.Errorf("%d bodies went on", len(r.bodies))
		}
	})
}

// TestObservedBody lets pass and tells what a name that is not observed would refuse.
func TestObservedBody(t *testing.T) {
	r := start(t, nil, func(s *setting) {
		s.Inspected = any443(route.Request{Methods: []string{"POST"}, Path: "/graphql", GraphQL: route.GraphQLQuery, Rule: "p:1"})
		s.Inspected[0].Allow = append(s.Inspected[0].Allow, route.Request{Methods: []string{"POST"}, Path: "/ok", Rule: "p:2"})
		s.Inspected[0].Observe = true
	})
	c := r.client(true)
	form := r.ask(c, "POST", "/ok", "_method=PUT", "Content-Type", "application/x-www-form-urlencoded")
	if e := r.event(); form.StatusCode != 200 || e.Refused != "" || !strings.HasPrefix(e.Observed, "method: ") {
		t.Errorf("%d %s: %+v", form.StatusCode, form.text, e)
	}
	got := r.ask(c, "POST", "/graphql", `{"query":"mutation{a}"}`, "Content-Type", "application/json")
	if e := r.event(); got.StatusCode != 200 || e.Refused != "" || !strings.HasPrefix(e.Observed, "graphql: ") {
		t.Errorf("%d %s: %+v", got.StatusCode, got.text, e)
	}
}
