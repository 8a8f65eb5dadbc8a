package inspect

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// underWay is a request of which the first bytes have arrived, and what may come then.
type underWay struct {
	what, kind, first string
	length            int64 // that the head tells; 0: it tells none
	was               route.Request
	routes            []route.Route // whose credentials are put on
	headers           []string
	changes           []change
}

type change struct {
	what   string
	next   []route.Request
	routes []route.Route
	ends   bool
}

// TestUnderWay: each policy judges what is under way by its head, by what has come of its body, and by the credential that
// was put on; what arrives at the server tells.
func TestUnderWay(t *testing.T) {
	post := func(q route.Request) route.Request {
		q.Methods, q.Rule = []string{"POST"}, "p:1"
		return q
	}
	one := func(q route.Request) []route.Request { return []route.Request{post(q)} }
	keyed := func(change func(*route.Route)) []route.Route {
		rt := route.Route{Name: "key", Inspects: name + ":443", Inject: route.Inject{Header: "x-api-key", Value: "{}"}}
		change(&rt)
		return []route.Route{rt}
	}
	same := func(*route.Route) {}
	names := func(r *route.Route) { r.Headers, r.Query = []string{"x-foo-token"}, []string{"a-token"} }
	bytes := strings.Repeat("b", 20_000)
	cases := []underWay{
		{what: "upload", kind: "application/octet-stream", first: bytes, changes: []change{
			{"the same", one(route.Request{}), nil, false},
			{"a larger one may", one(route.Request{MaxUpload: 30_000}), nil, false},
			{"a larger one may not", one(route.Request{MaxUpload: 10_000}), nil, true},
			{"no body may", one(route.Request{MaxUpload: -1}), nil, true},
			{"queries alone", one(route.Request{GraphQL: route.GraphQLQuery}), nil, true},
			{"another path", one(route.Request{Path: "/other"}), nil, true},
			{"this path", one(route.Request{Path: "/up"}), nil, false},
			{"another method", []route.Request{{Methods: []string{"PUT"}, Rule: "p:1"}}, nil, true},
			{"a credential is put on", one(route.Request{}), keyed(same), false},
		}},
		{what: "announced", kind: "application/octet-stream", first: bytes, length: 21_000, changes: []change{
			{"larger than announced", one(route.Request{MaxUpload: 21_000}), nil, false},
			{"smaller than announced", one(route.Request{MaxUpload: 20_500}), nil, true},
		}},
		{what: "bounded", kind: "application/octet-stream", first: bytes, was: route.Request{MaxUpload: 50_000}, changes: []change{
			{"unbounded", one(route.Request{}), nil, false},
			{"smaller than what comes", one(route.Request{MaxUpload: 20_001}), nil, true},
		}},
		{what: "packed", kind: "application/octet-stream", first: bytes, headers: []string{"Content-Encoding", "gzip"}, changes: []change{
			{"still", one(route.Request{}), nil, false},
			{"bounded", one(route.Request{MaxUpload: 1 << 20}), nil, true},
		}},
		{what: "form", kind: "application/x-www-form-urlencoded", first: "a=" + bytes, was: route.Request{Methods: []string{}}, changes: []change{
			{"any method", []route.Request{{Rule: "p:1"}}, nil, false},
			{"by its method", one(route.Request{}), nil, true},
		}},
		{what: "credential", kind: "application/octet-stream", first: bytes, routes: keyed(same), headers: []string{"X-Api-Key", token}, changes: []change{
			{"the same", one(route.Request{}), keyed(same), false},
			{"limits", one(route.Request{}), keyed(func(r *route.Route) { r.Limits.RequestsPerMinute = 1 }), false},
			{"no credential", one(route.Request{}), nil, true},
			{"elsewhere in the head", one(route.Request{}), keyed(func(r *route.Route) { r.Inject.Header = "x-other" }), true},
			{"put on besides", one(route.Request{}), keyed(func(r *route.Route) { r.Add = []route.Header{{Name: "x-org", Value: "1"}} }), true},
		}},
		{what: "named", kind: "application/octet-stream", first: bytes, routes: keyed(names), headers: []string{"X-Api-Key", token, "X-Foo-Token", "1"}, changes: []change{
			{"more named", one(route.Request{}), keyed(func(r *route.Route) {
				r.Headers, r.Query = []string{"x-bar-token", "x-foo-token"}, []string{"b-token", "a-token"}
			}), false},
			{"no header named", one(route.Request{}), keyed(func(r *route.Route) { r.Query = []string{"a-token"} }), true},
			{"no parameter named", one(route.Request{}), keyed(func(r *route.Route) { r.Headers = []string{"x-foo-token"} }), true},
		}},
		{what: "named without the token", kind: "application/octet-stream", first: bytes, routes: keyed(names), headers: []string{"X-Foo-Token", "1"}, changes: []change{
			{"the same", one(route.Request{}), keyed(names), false},
			{"no parameter named", one(route.Request{}), keyed(func(r *route.Route) { r.Headers = []string{"x-foo-token"} }), false},
			{"no header named", one(route.Request{}), keyed(same), true},
		}},
		{what: "own credential", kind: "application/octet-stream", first: bytes, headers: []string{"X-Api-Key", "somebody's"}, changes: []change{
			{"the only one", one(route.Request{}), keyed(same), true},
		}},
	}
	for _, c := range cases {
		for _, to := range c.changes {
			t.Run(c.what+"/"+to.what, func(t *testing.T) { both(t, func(t *testing.T, two bool) { c.try(t, to, two) }) })
		}
	}
}

func (c *underWay) try(t *testing.T, to change, two bool) {
	began, over := make(chan struct{}), make(chan error, 1)
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		_, err := io.ReadFull(q.Body, make([]byte, len(c.first)))
		if close(began); err == nil {
			_, err = io.Copy(io.Discard, q.Body)
		}
		if over <- err; err != nil {
			panic(http.ErrAbortHandler) // an answer would race with the end
		}
	}, func(s *setting) {
		was := c.was
		if was.Rule = "p:1"; was.Methods == nil {
			was.Methods = []string{"POST"}
		}
		s.Inspected, s.Routes, s.Credentials, s.http1 = any443(was), c.routes, map[string][]byte{"key": []byte(canary)}, !two
	})
	from, body := io.Pipe()
	defer body.Close()
	q, err := http.NewRequest("POST", "https://"+name+"/up", from)
	if err != nil {
		t.Fatal(err)
	}
	if q.ContentLength = -1; c.length > 0 {
		q.ContentLength = c.length
	}
	q.Header.Set("Content-Type", c.kind)
	for i := 0; i+1 < len(c.headers); i += 2 {
		q.Header.Set(c.headers[i], c.headers[i+1])
	}
	go func() {
		if resp, err := r.client(two).Do(q); err == nil {
			resp.Body.Close()
		}
	}()
	io.WriteString(body, c.first)
	select {
	case <-began:
	case e := <-r.events:
		t.Fatalf("it did not begin: %+v", e)
	case <-time.After(patience):
		t.Fatal("it did not begin")
	}
	next := r.loaded
	next.Inspected, next.Routes = any443(to.next...), to.routes
	if err := r.Load(next); err != nil {
		t.Fatal(err)
	}
	if c.was.MaxUpload > 0 || !to.ends { // the rest comes
		io.WriteString(body, strings.Repeat("b", max(2, int(c.length)-len(c.first))))
		body.Close()
	}
	select {
	case err := <-over:
		if (err != nil) != to.ends {
			t.Errorf("at the server: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	e := r.event()
	if refused := strings.HasPrefix(e.Refused, "policy: ") || strings.HasPrefix(e.Refused, "size: "); refused != to.ends {
		t.Errorf("%+v", e)
	}
}

// TestSocketUnderWay: WebSockets are judged by each policy, too.
func TestSocketUnderWay(t *testing.T) {
	get := func(q route.Request) []route.Request {
		q.Methods, q.Rule = []string{"GET"}, "p:1"
		return []route.Request{q}
	}
	deflate := []string{"Sec-WebSocket-Extensions", "permessage-deflate"}
	for what, c := range map[string]struct {
		next    route.Request
		headers []string
		ends    bool
	}{
		"the same":            {next: route.Request{WebSocket: true}},
		"more may be sent":    {next: route.Request{WebSocket: true, MaxUpload: 100}},
		"less may be sent":    {next: route.Request{WebSocket: true, MaxUpload: 4}, ends: true},
		"nothing may":         {next: route.Request{WebSocket: true, MaxUpload: -1}, ends: true},
		"what is not counted": {next: route.Request{WebSocket: true, MaxUpload: 100}, headers: deflate, ends: true},
		"no WebSocket":        {next: route.Request{}, ends: true},
		"another path":        {next: route.Request{WebSocket: true, Path: "/other"}, ends: true},
	} {
		t.Run(what, func(t *testing.T) {
			r := start(t, echo, func(s *setting) { s.Inspected, s.http1 = any443(get(route.Request{WebSocket: true})...), true })
			conn, from, resp := r.socket(t, "/ws", c.headers...)
			if resp.StatusCode != 101 {
				t.Fatal(resp.Status)
			}
			heard := func() error {
				want := frame(0x81, false, "hello")
				got := make([]byte, len(want))
				if _, err := io.WriteString(conn, frame(0x81, true, "hello")); err != nil {
					return err
				}
				_, err := io.ReadFull(from, got)
				return err
			}
			if err := heard(); err != nil {
				t.Fatal(err)
			}
			next := r.loaded
			next.Inspected = any443(get(c.next)...)
			if err := r.Load(next); err != nil {
				t.Fatal(err)
			}
			if !c.ends {
				if err := heard(); err != nil {
					t.Error("it ends:", err)
				}
				return
			}
			if _, err := from.ReadByte(); err == nil {
				t.Error("it goes on")
			}
			if e := r.event(); !strings.HasPrefix(e.Refused, "policy: ") {
				t.Errorf("%+v", e)
			}
		})
	}
}
