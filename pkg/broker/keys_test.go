package broker

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// injections are the ways to put a credential on, and where the API finds it.
var injections = map[string]struct {
	inject route.Inject
	find   func(*http.Request) string
}{
	"a header": {route.Inject{Header: "x-api-key", Value: "{}"}, func(r *http.Request) string { return r.Header.Get("X-Api-Key") }},
	"bearer": {route.Inject{Header: "authorization", Value: "Bearer {}"}, func(r *http.Request) string {
		return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}},
	"basic": {route.Inject{Basic: "me"}, func(r *http.Request) string {
		_, password, _ := r.BasicAuth()
		return password
	}},
	"the query": {route.Inject{Query: "key"}, func(r *http.Request) string { return r.URL.Query().Get("key") }},
	"by its beginning": {route.Inject{Header: "x-api-key", Value: "{}", ByPrefix: []route.Prefixed{
		{Prefix: "other-", Header: "x-other", Value: "{}"},
		{Prefix: "sk-canary-", Header: "authorization", Value: "Bearer {}", Append: []route.Header{{Name: "x-list-of", Value: "login"}}},
	}}, func(r *http.Request) string {
		if r.Header.Get("X-List-Of") != "theirs,login" {
			return "appended to " + r.Header.Get("X-List-Of")
		}
		return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}},
}

// TestKeysOfOthers puts keys wherever some API has one, for each way to put ours on. The API gets ours, once, and no other.
func TestKeysOfOthers(t *testing.T) {
	const theirs = "sk-stolen-KEY-of-somebody"
	names := []string{
		"X-Api-Key", "Authorization", "X-Goog-Api-Key", "Api-Key", "Proxy-Authorization", "Cookie", "X-Amz-Security-Token",
		"X-Auth-Token", "X-Access-Token", "Private-Token", "Anthropic-Workspace-Id", "Openai-Organization", "Openai-Project",
		"Chatgpt-Account-Id", "X-Goog-User-Project", "X-Forwarded-For", "X-Forwarded-Host", "X-Http-Method-Override", "Forwarded",
		"Sec-Fetch-Site", "Referer", "X-Unknown", "Te", "Expect-Ct",
	}
	for name, in := range injections {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, true, nil)
			r := start(t, a, func(s *setting) {
				s.Routes[0].Inject = in.inject
				s.Routes[0].Headers = append(s.Routes[0].Headers, "x-*", "a*", "p*") // a route that is careless
			})
			for _, name := range names {
				for _, value := range []string{theirs, "Bearer " + theirs, strings.TrimPrefix(strings.TrimSpace(basic(theirs)), "Authorization: ")} {
					req, err := http.NewRequest("GET", "http://"+r.addr+"/r/get?key="+token, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Add("X-Api-Key", token)
					req.Header.Add("X-List-Of", "theirs")
					req.Header.Add(name, value)
					if got := r.do(req); got.StatusCode != 200 {
						t.Fatalf("%s: answered %d %s", name, got.StatusCode, got.text)
					}
				}
			}
			for _, q := range a.requests() {
				all := fmt.Sprintf("%s %v", q.RequestURI, q.Header)
				delete(q.Header, "X-Unknown")
				for _, secret := range []string{theirs, token, base64.StdEncoding.EncodeToString([]byte("x:" + theirs))} {
					if strings.Contains(fmt.Sprintf("%s %v", q.RequestURI, q.Header), secret) {
						t.Errorf("the API got %s", all)
					}
				}
				if got := in.find(q); got != canary {
					t.Errorf("the API found %q in %s", got, all)
				}
			}
			for _, query := range []string{"key=" + theirs, "key=" + token + "&api_key=" + theirs, "key=" + token + "&%6bey=" + theirs,
				"key=" + token + "&access_token=" + theirs, "key=" + token + ";key=" + theirs} {
				before := len(a.requests())
				r.ask("GET", "/r/get?"+query, "")
				for _, q := range a.requests()[before:] {
					if strings.Contains(q.RequestURI, theirs) || in.find(q) != canary && name != "by its beginning" {
						t.Errorf("%s: the API got %s %v", query, q.RequestURI, q.Header)
					}
				}
			}
		})
	}
}

// TestCanary holds that the credential is in nothing but what the API gets: in no header that the API repeats it in, no
// event, no log, no error.
func TestCanary(t *testing.T) {
	spelt := []string{
		canary, "Bearer " + canary, url.QueryEscape(canary), url.PathEscape(canary), strings.ReplaceAll(url.QueryEscape(canary), "%2F", "%2f"),
		hex.EncodeToString([]byte(canary)), strings.ToUpper(hex.EncodeToString([]byte(canary))),
		base64.StdEncoding.EncodeToString([]byte(canary)), base64.RawURLEncoding.EncodeToString([]byte("a" + canary)),
		base64.StdEncoding.EncodeToString([]byte("me:" + canary + "!")), base64.URLEncoding.EncodeToString([]byte("xy" + canary)),
		`{"key": "` + canary + `"}`, "a=b; key=" + canary, url.QueryEscape(url.QueryEscape(canary)), html.EscapeString(canary), `"\u0073` + canary[1:] + `"`, "%73" + canary[1:],
	}
	for name, in := range injections {
		t.Run(name, func(t *testing.T) {
			var status int
			a := newAPI(t, true, func(w http.ResponseWriter, r *http.Request) {
				for i, s := range spelt {
					w.Header().Set(fmt.Sprintf("X-Echo-%d", i), s)
				}
				w.Header()["x-"+strings.ToLower(canary)[:12]] = []string{"a name that is a part of it"}
				w.Header().Add("X-Mixed", "fine")
				w.Header().Add("X-Mixed", canary)
				w.Header().Set("X-Fine", "fine")
				w.Header().Set("Www-Authenticate", `Bearer realm="api"`)
				w.Header().Set("Set-Cookie", "session=1")
				w.Header().Set("Authentication-Info", `nextnonce="1"`)
				w.Header().Set("X-Auth-Token", "1")
				w.Header().Set("Alt-Svc", `h3=":443"`)
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				io.WriteString(w, "no")
			})
			r := start(t, a, func(s *setting) { s.Routes[0].Inject = in.inject })
			for _, status = range []int{200, 401, 403, 429, 500, 302} {
				got := r.ask("POST", "/r/post", "x", "X-List-Of", "theirs")
				head := fmt.Sprint(got.Header)
				for _, s := range spelt {
					if strings.Contains(head, s) {
						t.Errorf("%d: %q in %s", status, s, head)
					}
				}
				if status != 302 && (got.StatusCode != status || got.text != "no" && (in.inject.Query == "" || status < 300 || !strings.Contains(got.text, "agent-init")) || got.Header.Get("X-Fine") != "fine" ||
					got.Header.Get("Www-Authenticate") == "" || got.Header.Get("Retry-After") != "7" ||
					len(got.Header["X-Mixed"]) != 1) {
					t.Errorf("%d: answered %d %q %v", status, got.StatusCode, got.text, got.Header)
				}
				for _, name := range []string{"Set-Cookie", "Alt-Svc", "Location", "Authentication-Info", "X-Auth-Token"} {
					if got.Header[name] != nil {
						t.Errorf("%d: answered %s", status, name)
					}
				}
				if e := fmt.Sprintf("%+v", r.event()); strings.Contains(e, canary) {
					t.Errorf("%d: recorded %s", status, e)
				}
			}
			if strings.Contains(r.logged(), canary) {
				t.Errorf("logged %s", r.logged())
			}
		})
	}
}
