package judge

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agent-init/agent-init/pkg/route"
)

var jsonHead = http.Header{"Content-Type": {"application/json"}}

// tickets is a route of one's own.
var tickets = route.Route{
	Name:   "tickets",
	Inject: route.Inject{Query: "token"},
	Query:  []string{"*"},
	Endpoints: []route.Endpoint{
		{Method: "GET", Path: "/v2/**", Query: []string{"*"}},
		{Method: "POST", Path: "/v2/search", Query: []string{"key"}, Body: route.Opaque},
		{Method: "PUT", Path: "/v2/search", Body: route.Opaque},
	},
}

func TestHeadPasses(t *testing.T) {
	for _, c := range []struct{ route, method, path, query string }{
		{"anthropic", "POST", "/v1/messages", ""},
		{"anthropic", "POST", "/v1/messages", "beta=true"},
		{"anthropic", "GET", "/v1/models", "limit=1000&after_id=a%20b"},
		{"anthropic", "GET", "/v1/models/claude-opus-5-5", ""},
		{"openai", "POST", "/v1/responses", ""},
		{"gemini", "POST", "/v1beta/models/gemini-3.8-flash:streamGenerateContent", "alt=sse"},
		{"gemini", "POST", "/v1beta/models/gemini-3.8-flash:generateContent", ""},
		{"bedrock", "POST", "/model/us.anthropic.claude-opus-5-5-v1:0/converse", ""},
		{"bedrock", "POST", "/model/us.anthropic.claude-opus-5-5-v1%3A0/invoke", ""},
		{"bedrock", "POST", "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Feu.x/converse-stream", ""},
		{"tickets", "GET", "/v2/", ""},
		{"tickets", "GET", "/v2/a%20b/%C3%A4/c:d@e,f(1)/", "q=a+b%26c&tag=1&tag=2&x"},
		{"tickets", "POST", "/v2/search", "key=PROJECT-1"},
	} {
		r := &tickets
		if c.route != r.Name {
			r = builtin(t, c.route)
		}
		e, refusal := Head(r, c.method, c.path, c.query, jsonHead)
		if refusal != nil {
			t.Errorf("%+v: %+v", c, *refusal)
		} else if e.Method != c.method || !e.MatchPath(c.path) {
			t.Errorf("%+v is taken for %+v", c, *e)
		}
	}
}

func TestHeadRefuses(t *testing.T) {
	for _, c := range []struct{ route, method, path, query, what string }{
		{"anthropic", "POST", "", "", "path"},
		{"anthropic", "POST", "v1/messages", "", "path"},
		{"anthropic", "POST", "*", "", "path"},
		{"anthropic", "POST", "http://evil.example/v1/messages", "", "path"},
		{"anthropic", "POST", "//evil.example/v1/messages", "", "path"},
		{"anthropic", "POST", "/", "", "path"},
		{"anthropic", "POST", "/v1/messages/", "", "path"},
		{"anthropic", "POST", "/v1//messages", "", "path"},
		{"anthropic", "POST", "//v1/messages", "", "path"},
		{"anthropic", "POST", "/v1/./messages", "", "path"},
		{"anthropic", "POST", "/v1/files/../messages", "", "path"},
		{"anthropic", "POST", "/v1/messages/../files", "", "path"},
		{"anthropic", "GET", "/v1/models/..", "", "path"},
		{"anthropic", "GET", "/v1/models/%2e%2e", "", "path"},
		{"anthropic", "GET", "/v1/models/%2E%2E", "", "path"},
		{"anthropic", "GET", "/v1/models/..%2Ffiles", "", "path"},
		{"anthropic", "GET", "/v1/models/a%2Fb", "", "path"},
		{"anthropic", "GET", "/v1/models/a%5Cb", "", "path"},
		{"anthropic", "GET", `/v1/models/a\b`, "", "path"},
		{"anthropic", "GET", "/v1/models/a%3Fb", "", "path"},
		{"anthropic", "GET", "/v1/models/a?b", "", "path"},
		{"anthropic", "GET", "/v1/models/a%23b", "", "path"},
		{"anthropic", "GET", "/v1/models/a#b", "", "path"},
		{"anthropic", "GET", "/v1/models/a;b", "", "path"},
		{"anthropic", "GET", "/v1/models/a%3Bb", "", "path"},
		{"anthropic", "GET", "/v1/models/a%00", "", "path"},
		{"anthropic", "GET", "/v1/models/a%0D%0Ab", "", "path"},
		{"anthropic", "GET", "/v1/models/a\r\nb", "", "path"},
		{"anthropic", "GET", "/v1/models/a b", "", "path"},
		{"anthropic", "GET", "/v1/models/%61", "", "path"},
		{"anthropic", "GET", "/v1/models/%", "", "path"},
		{"anthropic", "GET", "/v1/models/%2", "", "path"},
		{"anthropic", "GET", "/v1/models/%zz", "", "path"},
		{"anthropic", "GET", "/v1/models/%252e%252e", "", "path"},
		{"anthropic", "GET", "/v1/models/%c3%a4", "", "path"}, // in lower case
		{"anthropic", "GET", "/v1/models/%FF", "", "path"},
		{"anthropic", "GET", "/v1/models/ä", "", "path"},
		{"anthropic", "GET", "/v1/models/" + strings.Repeat("a", maxPath), "", "path"},
		{"anthropic", "POST", "/%761/messages", "", "path"},
		{"anthropic", "POST", "/V1/messages", "", "path"},
		{"anthropic", "POST", "/v1/messages/batches", "", "path"},
		{"anthropic", "POST", "/v1/messages/cache_touch", "", "path"},
		{"anthropic", "POST", "/v1/files", "", "path"},
		{"anthropic", "POST", "/v1/oauth/token", "", "path"},
		{"anthropic", "GET", "/v1/organizations/me", "", "path"},
		{"anthropic", "HEAD", "/api/hello", "", "path"},
		{"anthropic", "GET", "/v1/messages", "", "method"},
		{"anthropic", "post", "/v1/messages", "", "method"},
		{"anthropic", "DELETE", "/v1/models/a", "", "method"},
		{"anthropic", "HEAD", "/v1/models", "", "method"},
		{"anthropic", "POST", "/v1/messages", "beta=false", "query"},
		{"anthropic", "POST", "/v1/messages", "beta", "query"},
		{"anthropic", "POST", "/v1/messages", "beta=true&beta=true", "query"},
		{"anthropic", "POST", "/v1/messages", "beta=true&", "query"},
		{"anthropic", "POST", "/v1/messages", "&beta=true", "query"},
		{"anthropic", "POST", "/v1/messages", "beta=true;x=1", "query"},
		{"anthropic", "POST", "/v1/messages", "bet%61=true", "query"},
		{"anthropic", "POST", "/v1/messages", "key=sk-ant-other", "query"},
		{"anthropic", "GET", "/v1/models", "limit=1&limit=2", "query"},
		{"anthropic", "GET", "/v1/models", "limit=%", "query"},
		{"anthropic", "GET", "/v1/models", "limit=a b", "query"},
		{"anthropic", "GET", "/v1/models", "limit=" + strings.Repeat("1", maxQuery), "query"},
		{"openai", "POST", "/v1/alpha/search", "", "path"},
		{"openai", "GET", "/v1/responses/resp_1", "", "path"},
		{"openai", "GET", "/v1/responses", "", "method"},
		{"gemini", "POST", "/v1beta/models/a:batchGenerateContent", "", "method"},
		{"gemini", "POST", "/v1beta/tunedModels/a:generateContent", "", "path"},
		{"gemini", "POST", "/v1beta/models/a%3AgenerateContent", "", "path"},
		{"gemini", "POST", "/v1beta/interactions", "", "path"},
		{"gemini", "POST", "/upload/v1beta/files", "", "path"},
		{"gemini", "POST", "/v1beta/models/a:generateContent", "key=AIzaOther", "query"},
		{"gemini", "POST", "/v1beta/models/a:generateContent", "$key=AIzaOther", "query"},
		{"gemini", "POST", "/v1beta/models/a:generateContent", "%24key=AIzaOther", "query"},
		{"gemini", "POST", "/v1beta/models/a:generateContent", "access_token=x", "query"},
		{"gemini", "POST", "/v1beta/models/a:streamGenerateContent", "alt=json", "query"},
		{"bedrock", "POST", "/model/a%2F..%2F..%2Fasync-invoke/converse", "", "path"},
		{"bedrock", "POST", "/model/%2Fb/converse", "", "path"},
		{"bedrock", "POST", "/model/a%2F/converse", "", "path"},
		{"bedrock", "POST", "/model/a%2E/converse", "", "path"},
		{"bedrock", "POST", "/model/a%3a0/converse", "", "path"},
		{"bedrock", "POST", "/model/a/b/converse", "", "path"},
		{"tickets", "GET", "/v2", "", "path"},
		{"tickets", "GET", "/v3/a", "", "path"},
		{"tickets", "GET", "/v2/../v3", "", "path"},
		{"tickets", "GET", "/v2/a", "access_token=x", "credential"},
		{"tickets", "GET", "/v2/a", "Access%5Ftoken=x", "credential"},
		{"tickets", "GET", "/v2/a", "key=x", "credential"},
		{"tickets", "GET", "/v2/a", "%5Bprivate_token%5D=x", "credential"}, // as Rack reads it
		{"tickets", "GET", "/v2/a", "private.token=x", "credential"},       // as PHP does
		{"tickets", "GET", "/v2/a", "+key%00x=x", "credential"},
		{"tickets", "GET", "/v2/a", "%5Btoken%5D=x", "query"},
		{"tickets", "GET", "/v2/a", "token=x", "query"}, // the broker's own place for the credential
		{"tickets", "GET", "/v2/a", "=x", "query"},
		{"tickets", "PUT", "/v2/search", "key=x", "query"},
		{"tickets", "PATCH", "/v2/search", "", "method"},
	} {
		r := &tickets
		if c.route != r.Name {
			r = builtin(t, c.route)
		}
		if e, refusal := Head(r, c.method, c.path, c.query, jsonHead); refusal == nil {
			t.Errorf("%.200v passes as %+v", c, *e)
		} else if refusal.What != c.what {
			t.Errorf("%.200v is refused for %+v", c, *refusal)
		}
	}
}

func TestHeadJudgesContent(t *testing.T) {
	r := builtin(t, "anthropic")
	for _, c := range []struct {
		h    http.Header
		pass bool
	}{
		{http.Header{"Content-Type": {"application/json"}}, true},
		{http.Header{"Content-Type": {"Application/JSON; Charset=UTF-8"}}, true},
		{http.Header{"Content-Type": {`application/json; charset="utf-8"`}}, true},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, true},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"DEFLATE"}}, true},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"identity"}}, true},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip, gzip"}}, false},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip", "identity"}}, false},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"zstd"}}, false},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"br"}}, false},
		{http.Header{"Content-Type": {"application/json; charset=utf-16"}}, false},
		{http.Header{"Content-Type": {"application/json; charset=iso-8859-1"}}, false},
		{http.Header{"Content-Type": {"application/json; charset=utf-8; charset=utf-7"}}, false},
		{http.Header{"Content-Type": {"application/json; version=2"}}, false},
		{http.Header{"Content-Type": {"application/json", "text/plain"}}, false},
		{http.Header{"Content-Type": {"application/json, text/plain"}}, false},
		{http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, false},
		{http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, false},
		{http.Header{"Content-Type": {""}}, false},
		{http.Header{}, false},
	} {
		e, refusal := Head(r, "POST", "/v1/messages", "", c.h)
		if (refusal == nil) != c.pass {
			t.Errorf("%v: %+v", c.h, refusal)
		}
		if e == nil || e.Body != route.Messages {
			t.Errorf("%v: the endpoint is %+v", c.h, e)
		}
	}
	if _, refusal := Head(r, "GET", "/v1/models", "", http.Header{}); refusal != nil {
		t.Errorf("without a body: %+v", *refusal)
	}
	if _, refusal := Head(&tickets, "PUT", "/v2/search", "", http.Header{"Content-Type": {"text/plain"}}); refusal != nil {
		t.Errorf("an opaque body: %+v", *refusal)
	}
}

// credentials are where known APIs take one, or what says who pays, with spellings that HTTP takes for the same.
var credentials = []string{
	"Authorization", "authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "X-API-KEY", "Api-Key", "X-Goog-Api-Key",
	"X-Amz-Security-Token", "X-Amz-Date", "Anthropic-Workspace-Id", "Anthropic-User-Profile-Id", "Anthropic-Allowed-Org-Ids",
	"Openai-Organization", "OpenAI-Project", "Chatgpt-Account-Id", "X-Openai-Actor-Authorization", "X-Openai-Authorization-2",
	"X-Oai-Attestation", "X-Openai-Account-Routing-Override", "X-Goog-User-Project", "X-Goog-Iam-Authorization-Token",
	"X-Ms-Client-Request-Id", "Ocp-Apim-Subscription-Key", "Private-Token", "X-Http-Method-Override", "X-Forwarded-For",
	"Forwarded", "Connection", "Transfer-Encoding", "Te", "Upgrade", "Content-Length", "Content-Encoding", "Accept-Encoding",
	"Host", "Origin", "Sec-Websocket-Key", "Expect", "Trailer",
}

func TestPassHeaders(t *testing.T) {
	sent := http.Header{
		"Accept": {"a", "b"}, "User-Agent": {"claude-cli/2.1.330"}, "Content-Type": {"application/json"},
		"Anthropic-Version": {"2023-06-01"}, "Anthropic-Beta": {"a,b", "c"}, "X-Stainless-Lang": {"js"}, "X-App": {"cli"},
		"X-Unknown": {"x"}, "X-Claude-Code-Session-Id": {"s"},
	}
	for _, name := range credentials {
		sent[name] = []string{"sk-other"}
	}
	r := builtin(t, "anthropic")
	passed := PassHeaders(r, sent)
	want := []string{"Accept", "Anthropic-Beta", "Anthropic-Version", "Content-Type", "User-Agent", "X-App",
		"X-Claude-Code-Session-Id", "X-Stainless-Lang"}
	if got := slices.Sorted(keys(passed)); !slices.Equal(got, want) {
		t.Errorf("%v pass, want %v", got, want)
	}
	if !slices.Equal(passed["Anthropic-Beta"], []string{"a,b", "c"}) {
		t.Errorf("anthropic-beta is %v", passed["Anthropic-Beta"])
	}
	// A route that lists everything passes no credential, nor its own place for one.
	all := route.Route{Headers: []string{"*", "authorization", "x-api-key"}, Inject: route.Inject{Header: "x-tickets"}}
	sent["X-Tickets"] = []string{"other"}
	for name := range PassHeaders(&all, sent) {
		if slices.Contains(credentials, name) || name == "X-Tickets" {
			t.Errorf("%s passes", name)
		}
	}
	if PassHeaders(&all, sent)["X-Unknown"] == nil {
		t.Error("what a route lists does not pass")
	}
}

func keys(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if !yield(name) {
				return
			}
		}
	}
}

// FuzzHead holds what passes to what net/url reads.
func FuzzHead(f *testing.F) {
	for _, seed := range [][3]string{
		{"POST", "/v1/messages", "beta=true"}, {"GET", "/v1/models/a", ""}, {"GET", "/v2/a%20b/c", "q=1&q=2"},
		{"POST", "/model/arn%3Aaws%2Fx/converse", ""}, {"GET", "/v2/../x", "a=%zz"}, {"POST", "/v1beta/models/x:generateContent", ""},
		{"GET", "/v2/%2e%2e/x", "access_token=1"}, {"GET", "/v2/a;b", ";"}, {"POST", "/v2/search", "key=1"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	routes := []*route.Route{&tickets}
	for _, name := range route.Names() {
		routes = append(routes, builtin(f, name))
	}
	f.Fuzz(func(t *testing.T, method, rawPath, rawQuery string) {
		for _, r := range routes {
			e, refusal := Head(r, method, rawPath, rawQuery, jsonHead)
			if refusal != nil {
				if len(refusal.Text) > 600 || !utf8.ValidString(refusal.Text) || strings.ContainsAny(refusal.Text, "\r\n\x00") {
					t.Errorf("the refusal is %q", refusal.Text)
				}
				continue
			}
			checkHead(t, r, e, method, rawPath, rawQuery)
		}
	})
}

func checkHead(t *testing.T, r *route.Route, e *route.Endpoint, method, rawPath, rawQuery string) {
	t.Helper()
	u, err := url.ParseRequestURI(rawPath + "?" + rawQuery)
	if err != nil {
		t.Fatalf("net/url does not read %q?%q: %v", rawPath, rawQuery, err)
	}
	if u.Host != "" || u.Scheme != "" || u.Fragment != "" || u.RawQuery != rawQuery {
		t.Errorf("%q?%q is %#v", rawPath, rawQuery, u)
	}
	if clean := path.Clean(u.Path); u.Path != clean && u.Path != clean+"/" {
		t.Errorf("%q leads to %q", rawPath, clean)
	}
	if method != e.Method || !e.MatchPath(rawPath) || !slices.ContainsFunc(r.Endpoints, func(o route.Endpoint) bool {
		return o.Method == e.Method && o.Path == e.Path
	}) {
		t.Errorf("%s %q is taken for %+v", method, rawPath, *e)
	}
	// A segment has a slash in it only where it stands for a model of Bedrock's.
	if e.Body != route.Converse && e.Body != route.InvokeModel && strings.Count(u.Path, "/") != strings.Count(rawPath, "/") {
		t.Errorf("%q has a hidden slash", rawPath)
	}
	parameters, err := url.ParseQuery(rawQuery)
	if err != nil {
		t.Fatalf("net/url does not read %q: %v", rawQuery, err)
	}
	for name, values := range parameters {
		if name == r.Inject.Query {
			t.Errorf("%q has the broker's own parameter", rawQuery)
		}
		for _, v := range values {
			if !slices.Contains(e.Query, name) && !slices.Contains(e.Query, name+"="+v) &&
				(!slices.Contains(e.Query, "*") || !slices.Contains(r.Query, "*") || OfCredential(name)) {
				t.Errorf("%q has %s=%s", rawQuery, name, v)
			}
		}
	}
}
