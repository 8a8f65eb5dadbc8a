package judge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func to(methods []string, path string) route.Request {
	return route.Request{Methods: methods, Path: path, Rule: "p:1"}
}

var (
	get     = []string{"GET"}
	getHead = []string{"GET", "HEAD"}
	post    = []string{"POST"}
)

// forge is a name with rules as in the documentation, and denials.
var forge = route.Inspected{
	Name: "api.forge.example", Port: 443,
	Allow: []route.Request{
		to(getHead, "/repos/my-org/**"), to(get, "/users/*"), to(get, "/search/*/top"), to(get, "/api/v4/projects/my-org%2F*/issues"),
		to(post, "/graphql"), to(nil, "/any/**"), to(getHead, "/gists/**"), to(get, "/v1/models/*:generate"), to(get, "/exact/"),
		{Methods: get, Path: "/ws", WebSocket: true, Rule: "p:2"}, {Methods: post, Path: "/up", MaxUpload: 9, Rule: "p:3"},
		to(get, "/api/v4/projects/*%2Fsecret/**"), to(get, "/api/v4/projects/*/issues"), {Path: "/searched", MaxUpload: 9, Rule: "p:4"},
	},
	Deny: []route.Request{
		to(nil, "/gists/**"), to(get, "/repos/my-org/secret/**"), to(post, "/any/post"), to(nil, "/repos/*/*/hooks"),
		to(nil, "/api/v4/projects/*%2Fsecret/**"),
	},
}

func TestInspectedPasses(t *testing.T) {
	for _, c := range []struct{ method, path, query string }{
		{"GET", "/repos/my-org", ""}, {"GET", "/repos/my-org/", ""}, {"HEAD", "/repos/my-org/a", "q=%20&a=b&a=c"},
		{"GET", "/repos/my-org/a/contents/src%2Fmain.go", "ref=x/y"}, {"GET", "/repos/my-org/a/contents/wait%E2%80%A6/C%23/a%20b", ""},
		{"GET", "/repos/%6Dy-org/a@b", ""}, {"GET", "/repos/my-org/a%40b/%5B1%5D", ""}, {"GET", "/repos/my-org/100%25/x", ""},
		{"GET", "/repos/my-org/a;b", ""}, {"GET", "/repos/my-org/a/compare/x...y", ""}, {"GET", "/users/%C3%A4", ""},
		{"GET", "/users/a.json", ""}, {"GET", "/search/x/top", "_methods=1&method=x"}, {"GET", "/api/v4/projects/my-org%2Fa/issues", ""},
		{"GET", "/api/v4/projects/my-org%2fa/issues", ""}, {"POST", "/graphql", ""}, {"PATCH", "/any", ""}, {"M-SEARCH", "/any/x", ""},
		{"GET", "/any/post", ""}, {"GET", "/v1/models/a:generate", ""}, {"GET", "/exact/", ""}, {"POST", "/up", ""}, {"GET", "/ws", ""},
		{"GET", "/repos/my-org/secrets", ""}, {"GET", "/repos/my-org/a/hooks/1", ""}, {"GET", "/api/v4/projects/1/issues", ""},
	} {
		if _, refusal := Inspected(&forge, c.method, c.path, c.query, http.Header{}); refusal != nil {
			t.Errorf("%+v: %+v", c, *refusal)
		}
	}
}

func TestInspectedTells(t *testing.T) {
	socket := http.Header{"Upgrade": {"h2c, WebSocket"}, "Connection": {"Upgrade"}}
	for _, c := range []struct {
		method, path string
		h            http.Header
		want         Admitted
	}{
		{"GET", "/ws", socket, Admitted{Rule: "p:2", WebSocket: true}},
		{"GET", "/ws", nil, Admitted{Rule: "p:2", MaxUpload: -1}},
		{"GET", "/searched", nil, Admitted{Rule: "p:4", MaxUpload: 9}},
		{"POST", "/up", nil, Admitted{Rule: "p:3", MaxUpload: 9, Form: true}},
		{"PUT", "/any/x", nil, Admitted{Rule: "p:1"}},
	} {
		got, refusal := Inspected(&forge, c.method, c.path, "", c.h)
		if refusal != nil || *got != c.want {
			t.Errorf("%s %s: %+v, %+v", c.method, c.path, got, refusal)
		}
	}
	for what, c := range map[string][2]string{
		"denied": {"GET", "/gists/1"}, "method": {"PUT", "/users/x"}, "path": {"GET", "/other"}, "websocket": {"GET", "/users/x"},
	} {
		h := http.Header{}
		if what == "websocket" {
			h = socket
		}
		_, refusal := Inspected(&forge, c[0], c[1], "", h)
		if refusal == nil || refusal.What != what || !strings.Contains(refusal.Text, c[1]) || (refusal.Rule == "") != (what == "method" || what == "path") {
			t.Errorf("%v: %+v", c, refusal)
		}
	}
}

// TestOptionsHasNoBody where a rule only reads: it would be a way out, as that of a GET.
func TestOptionsHasNoBody(t *testing.T) {
	for want, rules := range map[int64][]route.Request{
		-1: {to(route.Reading(), ""), to([]string{"OPTIONS"}, "/**"), to([]string{"GET", "OPTIONS"}, "/x")},
		0:  {to([]string{"OPTIONS", "PROPFIND", "REPORT"}, "/**"), to(nil, "/**")},
		9:  {{Methods: route.Reading(), MaxUpload: 9}},
	} {
		for _, rule := range rules {
			i := route.Inspected{Name: "n", Allow: []route.Request{rule}}
			if got, refusal := Inspected(&i, "OPTIONS", "/x", "", nil); refusal != nil || got.MaxUpload != want {
				t.Errorf("%v: %+v, %+v; want %d", rule, got, refusal, want)
			}
		}
	}
}

// TestObserved lets pass and tells what no rule allows, but nothing that is no request to who reads it next.
func TestObserved(t *testing.T) {
	seen := forge
	seen.Observe = true
	for _, path := range []string{"/other", "/gists/1", "/users/..%2fx", "/a//b"} {
		got, refusal := Inspected(&seen, "DELETE", path, "", nil)
		if refusal != nil || got.Observed == nil || got.Rule != "" {
			t.Errorf("%s: %+v, %+v", path, got, refusal)
		}
	}
	if got, refusal := Inspected(&seen, "GET", "/users/x", "", nil); refusal != nil || got.Observed != nil || got.Rule != "p:1" {
		t.Errorf("%+v, %+v", got, refusal)
	}
	for _, c := range [][2]string{{"CONNECT", "/users/x"}, {"get", "/users/x"}, {"GET", "/users/x y"}, {"GET", "users"}, {"GET", "/x\r\nHost: y"}} {
		if got, refusal := Inspected(&seen, c[0], c[1], "", nil); refusal == nil {
			t.Errorf("%v: %+v", c, got)
		}
	}
}

// TestInspectedWithoutPaths shows that a path is not looked at where no rule is about one.
func TestInspectedWithoutPaths(t *testing.T) {
	i := route.Inspected{Name: "n", Allow: []route.Request{to([]string{"GET", "HEAD", "OPTIONS"}, "")}}
	for _, path := range []string{"/", "//a", "/a/../b", "/%2e%2e/%5c;x", "/%zz"} {
		if _, refusal := Inspected(&i, "GET", path, "", nil); refusal != nil {
			t.Errorf("%s: %+v", path, refusal)
		}
		if _, refusal := Inspected(&i, "PUT", path, "", nil); refusal == nil {
			t.Errorf("PUT %s passes", path)
		}
	}
}

// TestRulesThatCannotBeRead allow nothing, and deny all.
func TestRulesThatCannotBeRead(t *testing.T) {
	for _, pattern := range []string{"x", "/a/../b", "/a%2Ab", "/a%zz", "//", "/a b", "/\xff"} {
		if p := newPattern(pattern); p.allows([]string{"", "a"}) || !p.denies(readings("/a")) {
			t.Errorf("%q is read", pattern)
		}
	}
}

func TestOnward(t *testing.T) {
	h := http.Header{
		"Authorization": {"Bearer x"}, "Cookie": {"a", "b"}, "X-Own": {"y"}, "Range": {"bytes=1-"}, "Te": {"gzip, trailers"}, "Expect": {"100-continue"},
		"Connection": {"keep-alive"}, "Keep-Alive": {"1"}, "Proxy-Authorization": {"z"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"X"},
		"Upgrade": {"h2c"}, "Http2-Settings": {"AAA"}, "Sec-Websocket-Key": {"k"}, "Sec-Fetch-Mode": {"cors"}, "Content-Length": {"1"}, "Host": {"evil"},
		"X-Override-Url": {"/admin"}, "X-Envoy-Original-Path": {"/admin"}, "X-Matched-Path": {"/admin"}, "X-Invoke-Path": {"/admin"},
		"X-Http-Destinationurl": {"/admin"}, "Proxy": {"http://evil"}, "X-Accel-Mapping": {"/=/"}, "X-Sendfile-Type": {"X-Accel-Redirect"},
		"X-Forwarded-Host": {"evil"}, "X_forwarded_host": {"evil"}, "X-Original-Url": {"/admin"}, "X-Rewrite-Url": {"/admin"}, "Forwarded": {"host=evil"},
		"Transfer_encoding": {"chunked"}, "Content_length": {"0"},
	}
	got := Onward(h, false)
	for _, name := range []string{"Authorization", "Cookie", "X-Own", "Range", "Expect", "Sec-Fetch-Mode"} {
		if len(got[name]) != len(h[name]) {
			t.Errorf("%s does not go on", name)
		}
		delete(got, name)
	}
	if got.Get("Te") != "trailers" || len(got) != 1 {
		t.Errorf("goes on: %v", got)
	}
	got = Onward(h, true)
	if got.Get("Upgrade") != "websocket" || got.Get("Connection") != "Upgrade" || got.Get("Sec-WebSocket-Key") != "k" {
		t.Errorf("of a WebSocket goes on: %v", got)
	}
	answer := http.Header{"Alt-Svc": {"h3"}, "Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "Set-Cookie": {"a"}, "Transfer-Encoding": {"chunked"},
		"X-Csrf-Token": {"1"}, "X-Ratelimit-Remaining-Tokens": {"1"}}
	for _, session := range []string{"Set-Cookie2", "Authentication-Info", "Authorization", "X-Auth-Token", "X_subject_token", "X-Amz-Security-Token", "X-Api-Key"} {
		answer[session] = []string{"b"}
	}
	if back := Back(answer, false); len(back) != 10 || back.Get("Set-Cookie") != "a" {
		t.Errorf("goes back: %v", back)
	}
	if back := Back(answer, true); len(back) != 2 {
		t.Errorf("goes back: %v", back)
	}
}

// TestGraphQLSocket: over a WebSocket, operations are in frames that nobody reads.
func TestGraphQLSocket(t *testing.T) {
	i := route.Inspected{Name: "a.example", Port: 443, Allow: []route.Request{
		{Methods: get, Path: "/graphql", GraphQL: route.GraphQLQuery, WebSocket: true, Rule: "p:1"},
	}}
	h := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	if admitted, refusal := Inspected(&i, "GET", "/graphql", "query=%7Ba%7D", h); refusal == nil || refusal.What != "websocket" {
		t.Errorf("%+v %+v", admitted, refusal)
	}
	if _, refusal := Inspected(&i, "GET", "/graphql", "query=%7Ba%7D", http.Header{}); refusal != nil {
		t.Error(refusal.Text)
	}
}
