package judge

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// namesIn are the names in a file of testdata, of headers or of parameters.
func namesIn(t *testing.T, file, kind string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] == kind {
			names = append(names, words[1])
		}
	}
	if len(names) < 30 {
		t.Fatalf("%s has %d names of a %s", file, len(names), kind)
	}
	return names
}

// spelledHeaders are a header's name as servers take it for the same.
func spelledHeaders(name string) []string {
	return []string{name, strings.ToLower(name), strings.ToUpper(name), http.CanonicalHeaderKey(name),
		strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(strings.ToLower(name), "-", "_")}
}

// spelledParameters are a parameter's, as it stands in a query.
func spelledParameters(name string) []string {
	all := ""
	for i := range len(name) {
		all += fmt.Sprintf("%%%02x", name[i])
	}
	return []string{url.QueryEscape(name), url.QueryEscape(strings.ToUpper(name)), url.QueryEscape(strings.ToLower(name)),
		strings.ReplaceAll(name, "_", "."), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "_", "+"), strings.ReplaceAll(name, "_", "["),
		all, strings.ToUpper(all), url.QueryEscape(all), "+" + name, name + "%00x", name + "[]", "[" + name + "]", "%5B" + name + "%5D"}
}

// TestCredentialHeaders: a header by which an API takes a credential passes on a route by its exact name alone.
func TestCredentialHeaders(t *testing.T) {
	for _, file := range []string{"credentials.txt", "clients.txt"} {
		for _, name := range namesIn(t, file, "header") {
			for _, spelled := range spelledHeaders(name) {
				h := http.Header{spelled: {"x"}}
				if got := OfCredential(spelled); got != (file == "credentials.txt") {
					t.Errorf("%s may have a credential: %v", spelled, got)
				}
				all := &route.Route{Headers: []string{"*"}}
				exact := &route.Route{Headers: []string{strings.ToLower(spelled)}}
				never := listed(neverHeaders, underscored(spelled))
				if passes := PassHeaders(all, h)[spelled] != nil; passes != (file == "clients.txt" && !never) {
					t.Errorf("%s passes by a *: %v", spelled, passes)
				}
				if passes := PassHeaders(exact, h)[spelled] != nil; passes == never {
					t.Errorf("%s passes by its name: %v", spelled, passes)
				}
				if got := CredentialHeader(exact, spelled); got && file == "clients.txt" {
					t.Errorf("%s of a client may have a credential", spelled)
				}
			}
		}
	}
}

// TestCredentialParameters: likewise a parameter, on a route of one's own.
func TestCredentialParameters(t *testing.T) {
	judged := func(list []string, query string) *Refusal {
		r := &route.Route{Name: "own", Query: list, Endpoints: []route.Endpoint{{Method: "GET", Path: "/**", Query: []string{"*"}}}}
		_, refusal := Head(r, "GET", "/a", query, nil)
		return refusal
	}
	for _, name := range namesIn(t, "credentials.txt", "query") {
		for _, s := range spelledParameters(name) {
			for _, query := range []string{s + "=x", s, "a=1&" + s + "=x", s + "=1&" + s + "=2"} {
				if strings.Contains(s, "$") && s != name {
					continue
				}
				for _, list := range [][]string{nil, {"a"}, {"*"}, {"a", name[:2] + "*"}} {
					if judged(list, query) == nil {
						t.Errorf("%s passes by %v", query, list)
					}
				}
			}
		}
		if refusal := judged([]string{"b", strings.ToLower(name)}, url.QueryEscape(name)+"=x&b=1&b=2"); refusal != nil {
			t.Errorf("%s does not pass by its name: %s", name, refusal.Text)
		}
		if refusal := judged([]string{"*"}, url.QueryEscape(name)+"=x"); refusal == nil || !strings.Contains(refusal.Text, "query: ["+strings.ToLower(name)+"]") {
			t.Errorf("of %s is said: %+v", name, refusal)
		}
	}
	for _, name := range namesIn(t, "clients.txt", "query") {
		for _, list := range [][]string{{"*"}, {strings.ToLower(name)}, {strings.ToLower(name[:1]) + "*"}} {
			for _, query := range []string{url.QueryEscape(name) + "=x", url.QueryEscape(strings.ToUpper(name)) + "=x&" + url.QueryEscape(name), name + "[a]=1"} {
				if refusal := judged(list, query); refusal != nil {
					t.Errorf("%s by %v: %s", query, list, refusal.Text)
				}
			}
		}
		if refusal := judged(nil, url.QueryEscape(name)+"=x"); refusal == nil || !strings.Contains(refusal.Text, "query: ["+strings.ToLower(name)+"]") {
			t.Errorf("of %s, which nobody lists, is said: %+v", name, refusal)
		}
	}
	for query, want := range map[string]bool{
		"filter[state]=1": true, "filter[key]=1": true, "filter[api_key]=1": false, "a[b][token]=x": false, "callback=x": false,
		"%E2%84%AAey=x": false, "acce%C5%BF%C5%BF_token=x": false, "ke%C4%B1=x": true,
	} {
		if refusal := judged([]string{"*"}, query); (refusal == nil) != want {
			t.Errorf("%s: %+v", query, refusal)
		}
	}
}

// TestHarmlessNames: what stands beside a harmless part of a name is judged as before.
func TestHarmlessNames(t *testing.T) {
	for name, want := range map[string]bool{
		"Sec-WebSocket-Key": false, "X-Api-Csrf-Token": false, "X-Next-Page-Token": false, "X-Auth-Page-Token": true, "X-Page-Token-Secret": true,
		"X-Homepage-Token": true, "X-Blocked-Token": true, "X-Backend-Key": true, "X-Token-Type-Key": true, "api-key-id": false, "idtoken": true,
	} {
		if OfCredential(name) != want {
			t.Errorf("%s may have a credential: %v", name, !want)
		}
	}
}

// TestStranger: what is said of a credential names a list of the route only if that helps.
func TestStranger(t *testing.T) {
	r := &route.Route{Name: "own", Inject: route.Inject{Header: "x-own-token"}}
	for name, helps := range map[string]bool{"X-Foo-Token": true, "Authorization": false, "X_Own_Token": false, "X-Api-Key": false, "X-Auth-Token": false} {
		if got := Stranger(r, "headers", name).Text; strings.Contains(got, "headers: ["+strings.ToLower(name)+"]") != helps {
			t.Error(got)
		}
		with := *r
		with.Headers = []string{strings.ToLower(name)}
		if name != "X_Own_Token" && CredentialHeader(&with, name) == helps {
			t.Errorf("%s on the list does not do what is said of it", name)
		}
	}
	if got := Stranger(r, "query", "token\n").Text; strings.Contains(got, "query:") || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
	if got := slices.Sorted(keys(Back(http.Header{"Set-Cookie": {"1"}, "X-Session-Token": {"1"}, "Wechatpay-Signature": {"1"},
		"Www-Authenticate": {"1"}, "X-Ratelimit-Remaining-Tokens": {"1"}, "X-Oauth-Scopes": {"1"}, "Access-Control-Allow-Credentials": {"1"}}, true))); len(got) != 5 {
		t.Errorf("of an answer come back %v", got)
	}
}
