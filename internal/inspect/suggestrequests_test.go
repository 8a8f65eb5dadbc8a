package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

func TestSuggestRequests(t *testing.T) {
	refused := func(name string, port uint16, method, path, reason string) audit.Event {
		return audit.Event{Kind: audit.Broker, Verdict: audit.Deny, Name: name, Port: port, Method: method, Path: path, Reason: reason}
	}
	asked := func(method string, paths ...string) (log []audit.Event) {
		for _, p := range paths {
			log = append(log, refused("api.corp.example", 443, method, p, "path: no rule"))
		}
		return log
	}
	many := func(method, format string, n int) (log []audit.Event) {
		for i := range n {
			log = append(log, asked(method, fmt.Sprintf(format, string(rune('a'+i))+"x"))...)
		}
		return log
	}
	for name, tc := range map[string]struct {
		log  []audit.Event
		want []string
	}{
		"one":                {asked("GET", "/user"), []string{"api.corp.example GET /user 1"}},
		"methods join":       {append(asked("PUT", "/a/b", "/a/b"), asked("GET", "/a/b")...), []string{"api.corp.example GET,PUT /a/b 3"}},
		"numbers and hashes": {asked("GET", "/issues/17", "/issues/18", "/commits/0a1b2c3d4e5f", "/issues/17/comments"), []string{"api.corp.example GET /commits/* 1", "api.corp.example GET /issues/* 2", "api.corp.example GET /issues/*/comments 1"}},
		"many siblings":      {many("GET", "/orgs/%s/repos", 6), []string{"api.corp.example GET /orgs/*/repos 6"}},
		"few siblings":       {many("GET", "/orgs/%s/repos", 2), []string{"api.corp.example GET /orgs/ax/repos 1", "api.corp.example GET /orgs/bx/repos 1"}},
		"the first level":    {many("GET", "/%s", 7), []string{"api.corp.example GET /ax 1", "api.corp.example GET /bx 1", "api.corp.example GET /cx 1", "api.corp.example GET /dx 1", "api.corp.example GET /ex 1", "api.corp.example GET /fx 1", "api.corp.example GET /gx 1"}},
		"a tree of files":    {append(many("GET", "/raw/%s", 4), many("GET", "/raw/src/%s/y", 3)...), []string{"api.corp.example GET /raw/ax 1", "api.corp.example GET /raw/bx 1", "api.corp.example GET /raw/cx 1", "api.corp.example GET /raw/dx 1", "api.corp.example GET /raw/src/ax/y 1", "api.corp.example GET /raw/src/bx/y 1", "api.corp.example GET /raw/src/cx/y 1"}},
		"a large one":        {append(many("GET", "/raw/%s", 6), many("GET", "/raw/src/%s/y", 3)...), []string{"api.corp.example GET /raw/** 9"}},
		"a long path":        {asked("GET", "/a/"+strings.Repeat("b", 254)), []string{"api.corp.example GET /a/** 1"}},
		"only a long one":    {asked("GET", "/"+strings.Repeat("b", 255)), nil},
		"passes by now":      {asked("GET", "/repos/my-org/x"), nil},
		"graphql":            {[]audit.Event{refused("seen.corp.example", 443, "POST", "/v1/graphql", "path: x")}, []string{"seen.corp.example POST /v1/graphql graphql=query 1"}},
		"observed": {[]audit.Event{{Kind: audit.Broker, Verdict: audit.Allow, Enforce: audit.Deny, Name: "seen.corp.example", Port: 443, Method: "DELETE", Path: "/x", Suppressed: 2, Reason: "path: x"}},
			[]string{"seen.corp.example DELETE /x 3"}},
		"words of a neighbour": {append(asked("GET", "/graphql", "/up/x"), asked("POST", "/up/y")...), []string{
			"api.corp.example GET /graphql graphql=query 1", "api.corp.example GET /up/x 1", "api.corp.example POST /up/y max_upload=64KiB 1"}},
		"another port": {[]audit.Event{{Kind: audit.HTTP, Verdict: audit.Deny, Name: "api.corp.example", Port: 80}}, []string{"api.corp.example:80 read 1"}},
		"a socket":     {[]audit.Event{refused("api.corp.example", 443, "GET", "/repos/my-org/x", "websocket: x")}, []string{"api.corp.example GET /repos/my-org/x websocket 1"}},
		"over http":    {[]audit.Event{refused("plain.corp.example", 8080, "GET", "/y", "path: x")}, []string{"plain.corp.example:8080 GET /y http 1"}},
		"escapes":      {asked("GET", "/projects/my-org%2Frepo/x"), []string{"api.corp.example GET /projects/my-org%2Frepo/x 1"}},
		"tricks":       {asked("GET", "/a/../b", "/a//b", "/a%2e/b", "/**", "/a/*", "/a%00", "//x", "", "x", "/a b"), nil},
		"odd method":   {slices.Concat(asked("*", "/a"), asked("read", "/a"), asked("TRACE", "/a"), asked("GET,PUT", "/a"), asked("AGENT-INIT-TEST", "/a")), nil},
		"not inspected": {[]audit.Event{refused("reg.corp.example", 8443, "GET", "/a", "path: x"), refused("api.corp.example", 8443, "GET", "/a", "path: x"),
			refused("new.example", 443, "GET", "/a", "path: x")}, nil},
	} {
		s := newProposals(inspectedPolicy(t))
		for i, e := range tc.log {
			e.Time = noon.Add(time.Duration(i) * time.Second)
			s.Add(e)
		}
		if got := linesOf(s.Since(time.Time{})); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tc.want)
		}
	}
}

// What a rule denies is told, and no line proposed.
func TestSuggestDeniedRequests(t *testing.T) {
	s := newProposals(inspectedPolicy(t))
	s.Add(audit.Event{Kind: audit.Broker, Verdict: audit.Deny, Name: "api.corp.example", Port: 443, Method: "GET", Path: "/repos/my-org/secret/x", Reason: "denied: x"})
	r := s.Since(time.Time{})
	if len(r.Lines) > 0 || len(r.Denied) != 1 || r.Denied[0].Line != "api.corp.example GET /repos/my-org/secret/x" {
		t.Errorf("%+v", r)
	}
}

// The agent asks for as many paths as it likes.
func TestSuggestRequestsIsBounded(t *testing.T) {
	s := newProposals(inspectedPolicy(t))
	for i := range maxSteps + 2000 {
		s.Add(audit.Event{Kind: audit.Broker, Verdict: audit.Deny, Name: "api.corp.example", Port: 443, Method: "GET", Path: fmt.Sprintf("/x%dx", i), Reason: "path: x"})
	}
	if r := s.Since(time.Time{}); len(s.requests[requestPlace{"api.corp.example", policy.HTTPS, false}].below) > maxSteps || len(r.Lines) > maxSuggestions || r.More < 2000 {
		t.Errorf("%d lines, %d more", len(r.Lines), r.More)
	}
}
