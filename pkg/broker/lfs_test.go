package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

const lfsJSON = "application/vnd.git-lfs+json"

// store answers batches, with objects on its own host and on another one.
func store(t *testing.T, actions string) (*api, *rig) {
	a := newAPI(t, false, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/batch") {
			w.Header().Set("Content-Type", lfsJSON)
			if strings.HasPrefix(r.URL.Path, "/odd/") {
				w.WriteHeader(http.StatusCreated)
			}
			fmt.Fprintf(w, `{"transfer":"basic","objects":[{"oid":"abc","size":3,"actions":%s,"extra":"https://x"}],"more":1}`, actions)
			return
		}
		fmt.Fprint(w, "object")
	})
	a.TLS.Certificates = append(a.TLS.Certificates, a.ca.sign(t, "objects.test", time.Now().Add(time.Hour)))
	rt, _ := route.Builtin("gitea")
	rt.To, rt.Git.Write = "https://api.test/", true
	for _, m := range []string{"GET", "PUT"} {
		e := route.Endpoint{Method: m, Path: "/*/*/info/lfs/objects.test", Query: []string{"ticket"}, To: "https://objects.test"}
		if m == "PUT" {
			e.Body = route.GitObject
		}
		rt.Endpoints = append(rt.Endpoints, e)
	}
	return a, start(t, a, func(s *setting) {
		s.Routes, s.Credentials = []route.Route{rt}, map[string][]byte{"gitea": []byte(canary)}
	})
}

// batchOf asks where an object is.
func (r *rig) batchOf(operation string) (answered, batch) {
	r.t.Helper()
	got := r.ask("POST", "/gitea/o/r.git/info/lfs/objects/batch", `{"operation":"`+operation+`","transfers":["basic"],"objects":[{"oid":"abc","size":3}]}`,
		"Content-Type", lfsJSON)
	var b batch
	if got.StatusCode == 200 {
		if err := json.Unmarshal([]byte(got.text), &b); err != nil {
			r.t.Fatal(err)
		}
	}
	return got, b
}

// TestLargeFiles holds that objects pass by tickets: neither an address nor a header of a server's gets to the agent, and
// no ticket is of use for anything else.
func TestLargeFiles(t *testing.T) {
	a, r := store(t, `{
		"download":{"href":"https://objects.test/o%20b?sig=a%2Bb&x=1","header":{"Authorization":"Basic `+canary+`","Host":"evil.test","X-Bad":"a\nb"},"expires_in":60},
		"upload":{"href":"https://API.test/store/abc","header":{"Transfer-Encoding":"chunked","X-Signed":"s"}}}`)
	got, b := r.batchOf("upload")
	if got.StatusCode != 200 || strings.Contains(got.text, canary) || strings.Contains(got.text, "https://") || strings.Contains(got.text, "sig=") || got.Header.Get("Content-Type") != lfsJSON {
		t.Fatalf("answered %d %v: %s", got.StatusCode, got.Header, got.text)
	}
	at := func(name string) string {
		return strings.TrimPrefix(b.Objects[0].Actions[name].Href, "http://"+r.addr)
	}
	download, upload := at("download"), at("upload")
	if got := r.ask("GET", download, ""); got.StatusCode != 200 || got.text != "object" {
		t.Errorf("a download is answered %d %s", got.StatusCode, got.text)
	}
	q := a.requests()[1]
	if q.RequestURI != "/o%20b?sig=a%2Bb&x=1" || q.Host != "objects.test" || q.Header.Get("Authorization") != "Basic "+canary || q.Header.Get("X-Bad") != "" {
		t.Errorf("%s of %s arrived with %v", q.RequestURI, q.Host, q.Header)
	}
	if got := r.ask("PUT", upload, "new"); got.StatusCode != 200 {
		t.Errorf("an upload is answered %d %s", got.StatusCode, got.text)
	}
	q = a.requests()[2]
	if _, key, _ := q.BasicAuth(); q.RequestURI != "/store/abc" || q.Host != "api.test" || key != canary || q.Header.Get("X-Signed") != "s" || q.ContentLength != 3 {
		t.Errorf("%s of %s arrived with %v", q.RequestURI, q.Host, q.Header)
	}
	for what, ask := range map[string][2]string{
		"another method":     {"PUT", download},
		"another host":       {"GET", strings.Replace(download, "/objects.test?", "/here?", 1)},
		"another repository": {"GET", strings.Replace(download, "/o/r.git", "/o/s", 1)},
		"a changed one":      {"GET", download[:len(download)-1] + "A" + "A"},
		"none":               {"GET", "/gitea/o/r.git/info/lfs/here?ticket="},
		"an address":         {"GET", "/gitea/o/r.git/info/lfs/here?ticket=https://api.test/"},
	} {
		if got := r.ask(ask[0], ask[1], ""); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: answered %d %s", what, got.StatusCode, got.text)
		}
	}
	if n := len(a.requests()); n != 3 {
		t.Errorf("%d requests arrived", n)
	}
	if got := r.ask("POST", "/gitea/odd/r/info/lfs/objects/batch", `{"operation":"download","objects":[]}`, "Content-Type", lfsJSON); got.StatusCode != 201 || strings.Contains(got.text, canary) {
		t.Errorf("a batch with another status is answered %d %s", got.StatusCode, got.text)
	}
	rt := r.flows.Policy().routes()[0]
	rt.Git.Write = false
	if err := r.Load(Loaded{Routes: []route.Route{rt}, Credentials: map[string][]byte{"gitea": []byte(canary)}, Roots: a.ca.pool()}); err != nil {
		t.Fatal(err)
	}
	if got := r.ask("PUT", upload, "new"); got.StatusCode != http.StatusForbidden {
		t.Errorf("an upload by a ticket of when there were pushes is answered %d %s", got.StatusCode, got.text)
	}
}

// TestLargeFilesElsewhere holds that an answer with an address that no route leads to gets nowhere.
func TestLargeFilesElsewhere(t *testing.T) {
	for _, actions := range []string{
		`{"download":{"href":"https://evil.test/abc"}}`, `{"download":{"href":"http://api.test/abc"}}`, `{"download":{"href":"https://api.test:8443/abc"}}`,
		`{"download":{"href":"https://u:p@api.test/abc"}}`, `{"download":{"href":"//api.test/abc"}}`, `{"download":{"href":""}}`, `{"delete":{"href":"https://api.test/abc"}}`,
		`{"verify":{"href":"https://objects.test/abc"}}`, `[]`, `{"download":`,
		`{}}` + strings.Repeat(`,{}`, maxParts) + `,{"oid":""`,
	} {
		_, r := store(t, actions)
		if got, _ := r.batchOf("download"); got.StatusCode != http.StatusForbidden || strings.Contains(got.text, "u:p") {
			t.Errorf("%.80s: answered %d %.200s", actions, got.StatusCode, got.text)
		}
	}
}

// TestBatches holds what may be asked of where large files are.
func TestBatches(t *testing.T) {
	a, r := store(t, `{}`)
	for _, body := range []string{
		`{"operation":"delete","objects":[]}`, `{"operation":"download","operation":"upload","objects":[]}`, `{"operation":"download","transfers":["ssh"],"objects":[]}`,
		`{"operation":"download","href":"https://evil.test"}`, `[]`, `{}`, ``,
	} {
		if got := r.ask("POST", "/gitea/o/r.git/info/lfs/objects/batch", body, "Content-Type", lfsJSON); got.StatusCode != http.StatusForbidden || !strings.Contains(got.text, `"message":"refused by agent-init`) {
			t.Errorf("%s: answered %d %s", body, got.StatusCode, got.text)
		}
	}
	rt := r.flows.Policy().routes()[0]
	rt.Git.Write = false
	if err := r.Load(Loaded{Routes: []route.Route{rt}, Credentials: map[string][]byte{"gitea": []byte(canary)}, Roots: a.ca.pool()}); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.batchOf("upload"); got.StatusCode != http.StatusForbidden || !strings.Contains(got.text, "git: write") {
		t.Errorf("an upload without the word is answered %d %s", got.StatusCode, got.text)
	}
	if got, _ := r.batchOf("download"); got.StatusCode != http.StatusOK {
		t.Errorf("a download is answered %d %s", got.StatusCode, got.text)
	}
}

// FuzzBatch holds that a server's answer brings the agent no address but the broker's, and no ticket that leads elsewhere
// than to the route's hosts.
func FuzzBatch(f *testing.F) {
	f.Add("download", "https://api.test/a?b=c", 60)
	f.Add("upload", "https://api.test:443/%2e%2e/a#x", 0)
	f.Add("verify", "HTTPS://API.TEST/\\evil.test", -1)
	f.Add("download", "https://api.test@evil.test/", 1<<40)
	rt, _ := route.Builtin("gitea")
	rt.To = "https://api.test/"
	p := New(dialing("127.0.0.1:1"))
	if err := p.Load(Loaded{Routes: []route.Route{rt}, Credentials: map[string][]byte{"gitea": []byte(canary)}}); err != nil {
		f.Fatal(err)
	}
	w := p.flows.Policy()["gitea"]
	f.Fuzz(func(t *testing.T, name, href string, expires int) {
		x := &exchange{proxy: &serving{Proxy: p}, way: w, goal: w.goal, path: "/o/r/info/lfs/objects/batch", base: "http://127.0.0.1:1/gitea"}
		got, n := x.issue(name, lfsAction{Href: href, Header: map[string]string{"X-A": href}, ExpiresIn: expires})
		if n != nil {
			return
		}
		below, ok := strings.CutPrefix(got.Href, x.base)
		path, query, _ := strings.Cut(below, "?")
		if !ok || len(got.Header) > 0 || got.ExpiresIn < 1 || got.ExpiresIn > 3600 {
			t.Fatalf("%q becomes %+v", href, got)
		}
		x.path, x.query, x.endpoint = path, query, &w.route.Endpoints[0]
		out, err := w.goal.request(methodOf[name], path, "", http.Header{})
		if err != nil {
			t.Fatal(err)
		}
		if n := x.redeem(out); n != nil {
			t.Fatalf("the ticket for %q is refused: %s", href, n.Text)
		}
		if out.URL.Host != "api.test" || out.URL.Scheme != "https" || out.Host != "api.test" {
			t.Fatalf("%q leads to %s", href, out.URL)
		}
	})
}
