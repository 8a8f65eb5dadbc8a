package broker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestUnderWay: each policy judges what is under way by all that it was judged by when it began, and ends that alone
// which it refuses. What arrives at the server is what counts.
func TestUnderWay(t *testing.T) {
	git := func(change func(*route.Route)) route.Route {
		rt, _ := route.Builtin("github")
		rt.To, rt.Git = "https://api.test/", route.Git{Write: true, Repos: []string{"org/*"}, Branches: []string{"agent/*"}}
		change(&rt)
		return rt
	}
	api := func(name string, change func(*route.Route)) route.Route {
		rt, _ := route.Builtin(name)
		rt.To = "https://api.test/"
		change(&rt)
		return rt
	}
	own := func(change func(*route.Route)) route.Route {
		rt := opaque("r")
		change(&rt)
		return rt
	}
	same := func(*route.Route) {}
	push := "POST /github/org/one.git/git-receive-pack HTTP/1.1\r\nContent-Type: application/x-git-receive-pack-request\r\n"
	pushed := commandTo("refs/heads/agent/x") + "0000" + strings.Repeat("P", 100<<10)
	claude := func(extra string) (head, body string) {
		return "POST /anthropic/v1/messages HTTP/1.1\r\nContent-Type: application/json\r\n", `{"model":"claude-a","max_tokens":9,"messages":[{"role":"user","content":"x"}]` + extra + `}`
	}
	type change struct {
		what string
		next []route.Route
		ends bool
	}
	cases := []struct {
		what, head, body string
		first            route.Route
		streams          bool // the request is under way, and not the answer
		changes          []change
	}{
		{"a push", push, pushed, git(same), true, []change{
			{"the same", []route.Route{git(same)}, false},
			{"wider", []route.Route{git(func(r *route.Route) { r.Git = route.Git{Write: true} })}, false},
			{"another of as many branches", []route.Route{git(func(r *route.Route) { r.Git.Branches = []string{"x", "agent/*"} })}, false},
			{"git: read", []route.Route{git(func(r *route.Route) { r.Git.Write = false })}, true},
			{"other repos", []route.Route{git(func(r *route.Route) { r.Git.Repos = []string{"org/two"} })}, true},
			{"other branches", []route.Route{git(func(r *route.Route) { r.Git.Branches = []string{"main"} })}, true},
			{"another server", []route.Route{git(func(r *route.Route) { r.To = "https://other.test/" })}, true},
			{"another prefix", []route.Route{git(func(r *route.Route) { r.To = "https://api.test/x" })}, true},
			{"put on otherwise", []route.Route{git(func(r *route.Route) { r.Inject = route.Inject{Header: "x-key", Value: "{}"} })}, true},
			{"no route", nil, true},
		}},
		{"an opaque request", "POST /r/post HTTP/1.1\r\n", "x", own(same), false, []change{
			{"the same", []route.Route{own(same)}, false},
			{"more headers", []route.Route{own(func(r *route.Route) { r.Headers = append(r.Headers, "x-more") })}, false},
			{"fewer headers", []route.Route{own(func(r *route.Route) { r.Headers = r.Headers[:1] })}, true},
			{"limits", []route.Route{own(func(r *route.Route) { r.Limits.RequestsPerMinute = 1 })}, false},
			{"put on besides", []route.Route{own(func(r *route.Route) { r.Add = []route.Header{{Name: "x-org", Value: "1"}} })}, true},
			{"another method", []route.Route{own(func(r *route.Route) { r.Endpoints = r.Endpoints[:2] })}, true},
			{"another credential", []route.Route{own(func(r *route.Route) { r.Credential = []route.Source{{Env: "OTHER"}} })}, true},
		}},
	}
	asks := func(list ...string) func(*route.Route) {
		return func(r *route.Route) {
			r.Query = list
			for i := range r.Endpoints {
				r.Endpoints[i].Query = []string{"*"}
			}
		}
	}
	cases = append(cases, struct {
		what, head, body string
		first            route.Route
		streams          bool
		changes          []change
	}{"a parameter", "POST /r/post?page=1 HTTP/1.1\r\n", "x", own(asks("page", "sort")), false, []change{
		{"still named", []route.Route{own(asks("page"))}, false},
		{"any", []route.Route{own(asks("*"))}, false},
		{"another one", []route.Route{own(asks("sort"))}, true},
	}})
	head, body := claude("")
	cases = append(cases, struct {
		what, head, body string
		first            route.Route
		streams          bool
		changes          []change
	}{"a model", head, body, api("anthropic", same), false, []change{
		{"its models", []route.Route{api("anthropic", func(r *route.Route) { r.Models = []string{"claude-*"} })}, false},
		{"other models", []route.Route{api("anthropic", func(r *route.Route) { r.Models = []string{"other-*"} })}, true},
		{"more fields", []route.Route{api("anthropic", func(r *route.Route) { r.Fields = []string{"odd"} })}, false},
	}})
	head, body = claude(`,"odd":{"a":1}`)
	odd := func(r *route.Route) { r.Fields = []string{"odd", "even"} }
	cases = append(cases, struct {
		what, head, body string
		first            route.Route
		streams          bool
		changes          []change
	}{"a field", head, body, api("anthropic", odd), false, []change{
		{"the field", []route.Route{api("anthropic", func(r *route.Route) { r.Fields = []string{"odd"} })}, false},
		{"no field", []route.Route{api("anthropic", func(r *route.Route) { r.Fields = []string{"even"} })}, true},
	}})
	head, body = claude(`,"tools":[{"type":"web_search_20250305","name":"web_search"}]`)
	tools := func(list ...string) route.Route {
		return api("anthropic", func(r *route.Route) { r.ProviderTools = list })
	}
	cases = append(cases, struct {
		what, head, body string
		first            route.Route
		streams          bool
		changes          []change
	}{"a tool", head, body, tools("web_search", "code_execution"), false, []change{
		{"the tool", []route.Route{tools("web_search")}, false},
		{"no tool", []route.Route{tools("code_execution")}, true},
	}})
	for _, c := range cases {
		for _, to := range c.changes {
			t.Run(c.what+"/"+to.what, func(t *testing.T) {
				began, over := make(chan struct{}, 1), make(chan error, 1)
				whole := make(chan struct{})
				a := newStreaming(t, false, func(w http.ResponseWriter, r *http.Request) {
					if c.streams {
						io.ReadFull(r.Body, make([]byte, len(commandTo("refs/heads/agent/x"))))
						began <- struct{}{}
						_, err := io.Copy(io.Discard, r.Body)
						over <- err
						return
					}
					io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "text/event-stream")
					w.(http.Flusher).Flush()
					began <- struct{}{}
					select {
					case <-r.Context().Done():
						over <- r.Context().Err()
					case <-whole:
						over <- nil
					}
				})
				keys := map[string][]byte{}
				for _, rt := range append([]route.Route{c.first}, to.next...) {
					keys[rt.Name] = []byte(canary)
				}
				r := start(t, a, func(s *setting) { s.Routes, s.Credentials = []route.Route{c.first}, keys })
				conn, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				key := "X-Api-Key: " + token + "\r\n"
				first := c.body
				if c.streams {
					first = c.body[:len(c.body)-1] // the last byte comes when another policy has
				}
				fmt.Fprintf(conn, "%sHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", c.head, r.addr, key, len(c.body), first)
				select {
				case <-began:
				case e := <-r.events:
					t.Fatalf("it did not begin: %+v", e)
				case <-time.After(patience):
					t.Fatal("it did not begin")
				}
				if err := r.Load(Loaded{Routes: to.next, Credentials: keys, Roots: a.ca.pool()}); err != nil {
					t.Fatal(err)
				}
				if !to.ends {
					close(whole)
					if c.streams {
						io.WriteString(conn, c.body[len(first):])
					}
				}
				select {
				case err := <-over:
					if (err != nil) != to.ends {
						t.Errorf("at the server: %v", err)
					}
				case <-time.After(patience):
					t.Fatal("it goes on")
				}
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err == nil {
					_, err = io.Copy(io.Discard, answer.Body)
				}
				if e := r.event(); strings.HasPrefix(e.Refused, "policy: ") != to.ends {
					t.Errorf("recorded %+v (%v)", e, err)
				}
			})
		}
	}
}

// TestTicketLeadsNowhereElse: what a server told for its own objects goes to no other one, to which the route leads since.
func TestTicketLeadsNowhereElse(t *testing.T) {
	a, r := store(t, `{"upload":{"href":"https://api.test/lfs/x","header":{"X-Secret":"s"}}}`)
	_, b := r.batchOf("upload")
	if len(b.Objects) != 1 || b.Objects[0].Actions["upload"].Href == "" {
		t.Fatalf("no ticket: %+v", b)
	}
	path := strings.TrimPrefix(b.Objects[0].Actions["upload"].Href, "http://"+r.addr)
	rt := r.flows.Policy().routes()[0]
	to := strings.Replace(rt.To, "api.test", "objects.test", 1)
	for i := range rt.Endpoints {
		if rt.Endpoints[i].To == rt.To {
			rt.Endpoints[i].To = to
		}
	}
	rt.To = to
	if err := r.Load(Loaded{Routes: []route.Route{rt}, Credentials: map[string][]byte{rt.Name: []byte(canary)}, Roots: a.ca.pool()}); err != nil {
		t.Fatal(err)
	}
	before := len(a.requests())
	if got := r.ask("PUT", path, "new"); got.StatusCode != http.StatusForbidden || !strings.Contains(got.text, "is none of this agent-init's") || len(a.requests()) != before {
		t.Errorf("answered %d %s", got.StatusCode, got.text)
	}
}
