package inspect

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// keyed has a route put its credential onto the name.
func keyed(in route.Inject) func(*setting) {
	return func(s *setting) {
		s.Routes = []route.Route{{Name: "cli", Inspects: name + ":443", Inject: in, Add: []route.Header{{Name: "x-tenant", Value: "acme"}}}}
		s.Credentials = map[string][]byte{"cli": []byte(canary)}
	}
}

// TestKey: who shows the token gets the credential, who shows another one is refused, and who shows none gets none.
func TestKey(t *testing.T) {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+token))
	both(t, func(t *testing.T, two bool) {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("X-Repeats", "it is "+q.Header.Get("Authorization"))
			w.Header().Set("X-Fine", "1")
			w.Header().Set("Set-Cookie", "session=1")
			w.Header()["X_auth_token"] = []string{"1"}
		}, keyed(route.Inject{Header: "authorization", Value: "Bearer {}"}))
		c := r.client(two)
		for _, q := range []struct {
			header, value string
			status        int
			arrives       string
		}{
			{"Authorization", "Bearer " + token, 200, "Bearer " + canary}, {"Authorization", "token sk-" + token, 200, "Bearer " + canary},
			{"X-Api-Key", token, 200, "Bearer " + canary}, {"Authorization", basic, 200, "Bearer " + canary},
			{"Authorization", "Bearer sk-of-somebody-else", 403, ""}, {"X-Api-Key", "sk-of-somebody-else", 403, ""},
			{"Cookie", "session=1", 200, ""}, {"Private-Token", "x", 403, ""}, {"Authorization", token + "x", 403, ""},
			{"X-Vault-Token", "x", 403, ""}, {"Ocp-Apim-Subscription-Key", "x", 403, ""}, {"X_Amz_Security_Token", "x", 403, ""},
			{"DD-Application-Key", "x", 403, ""}, {"X-Openai-Actor-Authorization", "x", 403, ""}, {"X-Sentry-Auth", "x", 403, ""},
			{"X-Csrf-Token", "1", 200, ""}, {"Idempotency-Key", "1", 200, ""}, {"X-Author", "1", 200, ""}, {"X-Other", "1", 200, ""},
		} {
			before := len(r.requests())
			got := r.ask(c, "GET", "/", "", q.header, q.value, "X-Tenant", "evil", "X_Tenant", "evil")
			if got.StatusCode != q.status || got.Header.Get("X-Repeats") != "" && q.arrives != "" ||
				got.Header["Set-Cookie"] != nil || got.Header["X_auth_token"] != nil {
				t.Errorf("%v: %d %v %s", q, got.StatusCode, got.Header, got.text)
			}
			e := r.event()
			if (e.Route == "cli") != (q.arrives != "") || (e.Fingerprint != "") != (q.arrives != "") || strings.Contains(e.Refused, canary) {
				t.Errorf("%v: %+v", q, e)
			}
			if q.status != 200 {
				continue
			}
			came := r.requests()[before].Header
			if came.Get("Authorization") != q.arrives || came.Get("X-Tenant") != "acme" || len(came["X-Tenant"]) != 1 || came["X_tenant"] != nil || came["X-Api-Key"] != nil || came["Cookie"] != nil {
				t.Errorf("%v: %v", q, came)
			}
		}
	})
}

// TestKeyInQuery: likewise where the credential is a parameter.
func TestKeyInQuery(t *testing.T) {
	r := start(t, nil, keyed(route.Inject{Query: "key"}))
	c := r.client(true)
	for query, want := range map[string]string{
		"?a=1&key=" + token: "/?a=1&key=sk-canary-3f2a9d-VERYSECRET%2B%2F%3Dx", "?a=%31": "/?a=%31",
		"?key=sk-of-somebody-else": "", "?%6bey=x": "", "?KEY=x": "", "?access_token=x": "", "?a=1;key=x": "", "?a;%6bey=x&b": "",
		"?a=1;b=2": "/?a=1;b=2", "?key=" + token + "&key=x": "",
		// As Rack and PHP read names.
		"?[private_token]=x": "", "?%5B%5Bprivate_token%5D=x": "", "?private.token=x": "", "?+access_token=x": "", "?key%00x=x": "", "?a;[key]=x": "",
		"?sig=x": "", "?X-Amz-Signature=x": "", "?subscription-key=x": "", "?$httpHeaders=Authorization:x": "", "?%24access_token=x": "",
		"?access[token=x": "", "?a;api_token=x": "",
		"?a[key]=1&callback=x&my.keys=1&keys=1": "/?a[key]=1&callback=x&my.keys=1&keys=1",
	} {
		before := len(r.requests())
		got := r.ask(c, "GET", "/"+query, "")
		switch all := r.requests(); {
		case want == "" && (got.StatusCode != 403 || len(all) != before):
			t.Errorf("%s: %d", query, got.StatusCode)
		case want != "" && (len(all) != before+1 || all[before].RequestURI != want):
			t.Errorf("%s: %d %s", query, got.StatusCode, got.text)
		}
	}
}

// TestKeysOfAPIs: where any API takes a credential, none of the agent's passes. What its clients send besides does, and what
// the route names.
func TestKeysOfAPIs(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		r := start(t, nil, keyed(route.Inject{Header: "x-own-place", Value: "{}"}))
		c := r.client(two)
		ask := func(kind, name string) (passed bool, said string) {
			before, path, header := len(r.requests()), "/", []string{name, "x"}
			if kind == "query" {
				path, header = "/?a=1&"+url.QueryEscape(name)+"=x&b", nil
			}
			got := r.ask(c, "GET", path, "", header...)
			all := r.requests()[before:]
			if len(all) != 0 && kind == "query" && all[0].RequestURI != path || (got.StatusCode == 200) != (len(all) == 1) {
				t.Errorf("%s %s: %d, and there arrives %v", kind, name, got.StatusCode, all)
			}
			return len(all) != 0 && (kind == "query" || all[0].Header.Get(name) == "x"), got.text
		}
		var headers, queries []string
		for file, want := range map[string]bool{"clients.txt": true, "credentials.txt": false} {
			text, err := os.ReadFile("../judge/testdata/" + file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				words := strings.Fields(line)
				if words[0] == "#" {
					continue
				}
				kind, name := words[0], words[1]
				passed, said := ask(kind, name)
				if passed != want {
					t.Errorf("%s %s passes: %v", kind, name, passed)
				}
				if list := map[string]string{"header": "headers", "query": "query"}[kind]; !want && strings.Contains(said, list+": [") {
					if kind == "query" {
						queries = append(queries, name)
					} else {
						headers = append(headers, name)
					}
				}
			}
		}
		if len(headers) < 50 || len(queries) < 30 {
			t.Fatalf("a policy may let pass %d headers and %d parameters", len(headers), len(queries))
		}
		l := r.loaded
		own := l.Routes[0]
		for _, name := range headers {
			own.Headers = append(own.Headers, strings.ToLower(name))
		}
		for _, name := range queries {
			own.Query = append(own.Query, strings.ToLower(name))
		}
		l.Routes = []route.Route{own}
		if err := r.Load(l); err != nil {
			t.Fatal(err)
		}
		for _, name := range headers {
			if passed, said := ask("header", name); !passed {
				t.Errorf("%s, which the route names, does not pass: %s", name, said)
			}
		}
		for _, name := range queries {
			if passed, said := ask("query", name); !passed {
				t.Errorf("%s, which the route names, does not pass: %s", name, said)
			}
		}
		if passed, _ := ask("header", "X-Own-Place"); passed {
			t.Error("the route's own place is open")
		}
	})
}

// TestKeyInAnswer: what a server says of an address with the credential in it does not come back: neither in a page about
// an error or a redirect, nor in a header, however it is spelt.
func TestKeyInAnswer(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/dir/", func(w http.ResponseWriter, q *http.Request) {})
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		uri := q.URL.RequestURI()
		text, _ := json.Marshal("//" + uri)
		for i, s := range []string{uri, url.QueryEscape(uri), url.QueryEscape(url.QueryEscape(uri)), html.EscapeString(canary), string(text), "\\u0073" + canary[1:], "%73" + canary[1:]} {
			w.Header().Set("X-Echo-"+string(rune('a'+i)), s)
		}
		switch q.URL.Path {
		case "/dir":
			mux.ServeHTTP(w, q)
			return
		case "/fine":
			_, _ = io.WriteString(w, "fine")
			return
		case "/same":
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", "1")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "Cannot GET "+html.EscapeString(uri))
	}, keyed(route.Inject{Query: "key"}))
	both(t, func(t *testing.T, two bool) {
		c := r.client(two)
		for path, status := range map[string]int{"/dir": 307, "/none": 404, "/fine": 200, "/same": 304} {
			for _, method := range []string{"GET", "HEAD"} {
				got := r.ask(c, method, path+"?a=1&key="+token, "")
				said := fmt.Sprint(got.Header) + got.text
				if got.StatusCode != status || strings.Contains(said, canary[3:12]) || (status == 307 || status == 404) && method == "GET" &&
					(!strings.Contains(got.text, "agent-init") || got.ContentLength != int64(len(got.text)) || got.Header["Etag"] != nil) ||
					status == 200 && method == "GET" && got.text != "fine" {
					t.Errorf("%s %s: %d %s", method, path, got.StatusCode, said)
				}
			}
		}
		// Without the token nothing is put on, and nothing is hidden.
		if got := r.ask(c, "GET", "/none", ""); !strings.Contains(got.text, "Cannot GET /none") {
			t.Errorf("%d %s", got.StatusCode, got.text)
		}
	})
}

// TestJar: a client that keeps cookies goes on to be answered, and never has one of the server's.
func TestJar(t *testing.T) {
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "operators"})
		_, _ = io.WriteString(w, q.Header.Get("Authorization")+q.Header.Get("Cookie"))
	}, keyed(route.Inject{Header: "authorization", Value: "Bearer {}"}))
	c := r.client(true)
	jar, _ := cookiejar.New(nil)
	c.Jar = jar
	at := &url.URL{Scheme: "https", Host: name, Path: "/"}
	jar.SetCookies(at, []*http.Cookie{{Name: "old", Value: "1"}})
	for range 3 {
		got := r.ask(c, "GET", "/", "", "Authorization", "Bearer "+token)
		if got.StatusCode != 200 || got.text != "Bearer "+canary {
			t.Errorf("%d %s", got.StatusCode, got.text)
		}
	}
	if kept := jar.Cookies(at); len(kept) != 1 {
		t.Errorf("the client has %v", kept)
	}
}

// TestKeyBehind: nothing stands behind the body that would be taken for a credential, or for what the route has.
func TestKeyBehind(t *testing.T) {
	r := start(t, nil, keyed(route.Inject{Header: "authorization", Value: "Bearer {}"}))
	for trailer, want := range map[string]int{"Authorization": 403, "X_Api_Key": 403, "X-Tenant": 403, "X_Tenant": 403, "X-Sum": 200} {
		q, _ := http.NewRequest("POST", "https://"+name+"/", strings.NewReader("a body"))
		q.ContentLength, q.Trailer = -1, http.Header{trailer: {"evil"}}
		if got := r.do(r.client(false), q); got.StatusCode != want {
			t.Error(trailer, got.StatusCode, got.text)
		}
	}
}

// TestKeyElsewhere: a credential goes to its own name alone, and never in the clear.
func TestKeyElsewhere(t *testing.T) {
	r := start(t, nil)
	for _, inspects := range []string{"other.test:443", name + ":8443", name, ""} {
		l := r.loaded
		l.Routes = []route.Route{{Name: "cli", Inspects: inspects, Inject: route.Inject{Header: "x-api-key", Value: "{}"}}}
		l.Credentials = map[string][]byte{"cli": []byte(canary)}
		if err := r.Load(l); (err == nil) != (inspects == "") {
			t.Error(inspects, err)
		}
	}
	l := r.loaded
	l.Inspected = []route.Inspected{{Name: name, Port: 80, Plain: true}}
	l.Routes = []route.Route{{Name: "cli", Inspects: name + ":80", Inject: route.Inject{Header: "x-api-key", Value: "{}"}}}
	l.Credentials = map[string][]byte{"cli": []byte(canary)}
	if r.Load(l) == nil {
		t.Error("a credential would go over plain http")
	}
}

// TestKeyMissing: while a credential can't be had, no other passes in its place, and the token goes nowhere.
func TestKeyMissing(t *testing.T) {
	r := start(t, nil, keyed(route.Inject{Header: "authorization", Value: "Bearer {}"}), func(s *setting) { s.Credentials = nil })
	for value, want := range map[string]int{"Bearer " + token: 503, "Bearer sk-of-somebody-else": 403} {
		if got := r.ask(r.client(true), "GET", "/", "", "Authorization", value); got.StatusCode != want {
			t.Error(value, got.StatusCode, got.text)
		}
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("%d requests went on", n)
	}
}

// TestKeyInProtocol: browsers show a key where a WebSocket's protocol is chosen, since they can set no other header
// (https://platform.openai.com/docs/guides/realtime-websocket, and the API server of Kubernetes).
func TestKeyInProtocol(t *testing.T) {
	r := start(t, echo, keyed(route.Inject{Header: "authorization", Value: "Bearer {}"}))
	for protocol, want := range map[string]int{
		"realtime, openai-insecure-api-key.sk-x": 403, "token, 0123": 403, "base64url.bearer.authorization.k8s.io.eA": 403,
		strings.Repeat("a", 50): 403, "openai-beta.realtime-v1, graphql-transport-ws": 101,
	} {
		if _, _, resp := r.socket(t, "/", "Sec-WebSocket-Protocol", protocol); resp.StatusCode != want {
			t.Error(protocol, resp.StatusCode)
		}
	}
}
