package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestStrangersKeys: of an attacker's key nothing arrives, in a header or a parameter, at an inspected name with the
// operator's and on a route of one's own. What clients send besides arrives, and what the policy names.
func TestStrangersKeys(t *testing.T) {
	const stolen = "sk-of-somebody-else"
	files := []lab.File{
		{Path: "/run/secrets/corp", Data: []byte(rig.BrokerKey + "\n"), Mode: 0o400},
		{Path: "/etc/agent-init/policy.yaml", Data: []byte(`broker:
  corp:
    inspect: api.test
    credential: file:/run/secrets/corp
    inject: {header: Authorization, value: "Bearer {}"}
    headers: [X-Shard-Token]
    query: [shard_token]
    env: {CORP_KEY: "{token}"}
  mine:
    to: https://shared.test/
    credential: file:/run/secrets/corp
    inject: {header: Authorization, value: "Bearer {}"}
    allow: [GET /**]
    headers: [X-Shard-Token, X-*]
    query: [page_*, "*", shard_token]
    env: {MINE_URL: "{base}"}
  narrow:
    to: https://api.github.com/
    credential: file:/run/secrets/corp
    inject: {header: Authorization, value: "Bearer {}"}
    allow: [GET /**]
    query: [page]
    env: {NARROW_URL: "{base}"}
`)},
	}
	b := &rig.Brokered{World: rig.LookedInto(t, "ok.test\napi.test GET /open/**\n", lab.BoxOptions{Files: files})}
	token := "Authorization: Bearer " + b.Variable("CORP_KEY")
	// try asks for something at each place, and gives what arrived there.
	try := func(place, url, header, query string, flags ...string) (status, arrived string) {
		before := len(b.Lab.Web.Requests(place))
		args := append([]string{"http", "-timeout", "60s", "-header", token, "-header", header}, flags...)
		if query != "" {
			url += "?" + query
		}
		p := b.Poke(append(args, url)...)
		got := b.Lab.Web.Requests(place)[before:]
		if len(got) > 1 || len(got) == 1 && got[0].Header.Get("Authorization") != "Bearer "+rig.BrokerKey {
			t.Errorf("%s %s at %s arrived as %+v", header, query, url, got)
		}
		for _, r := range got {
			arrived = fmt.Sprintf("%s %v", r.URI, r.Header)
		}
		return rig.StatusOf(p), arrived
	}
	inspected, mine, narrow := "https://api.test/open/a", b.Variable("MINE_URL")+"/a", b.Variable("NARROW_URL")+"/a"
	ways := []struct {
		place, url string
		flags      []string
		drops      bool // headers, and does not refuse the request
	}{
		{"api.test", inspected, []string{"-ca", rig.Trust()}, false},
		{"api.test", inspected, []string{"-ca", rig.Trust(), "-h1"}, false},
		{"shared.test", mine, nil, true},
	}
	for _, w := range ways {
		for _, name := range []string{"X-JFrog-Art-Api", "Fastly-Key", "X-RapidAPI-Key", "X-Metabase-Session", "x-functions-key", "X_Api_Token", "X-Auth-Jwt"} {
			status, arrived := try(w.place, w.url, name+": "+stolen, "", w.flags...)
			if strings.Contains(arrived, stolen) || (status == "200") != w.drops {
				t.Errorf("%s at %s %v: %s, and there arrives %s", name, w.url, w.flags, status, arrived)
			}
		}
		for _, name := range []string{"api_token", "jwt", "appid", "sentry_key", "client_secret", "%61pi_token", "API.TOKEN", "[api_token]", "api_token[]", "password"} {
			status, arrived := try(w.place, w.url, "X-Other: 1", "a=1&"+name+"="+stolen, w.flags...)
			if arrived != "" || status != "403" {
				t.Errorf("%s at %s %v: %s, and there arrives %s", name, w.url, w.flags, status, arrived)
			}
		}
		for _, c := range []struct{ header, query string }{
			{"X-Atlassian-Token: no-check", ""}, {"X-Token-Type: web", "pageToken=2&page_token=1"}, {"X-Shard-Token: 1", "shard_token=1&sort_key=1"},
		} {
			status, arrived := try(w.place, w.url, c.header, c.query, w.flags...)
			want := "/a?" + c.query + " "
			if c.query == "" {
				want = "/a "
			}
			if name, value, _ := strings.Cut(c.header, ": "); status != "200" || !strings.Contains(arrived, name+":["+value+"]") || !strings.Contains(arrived, want) {
				t.Errorf("%s %s at %s %v: %s, and there arrives %s", c.header, c.query, w.url, w.flags, status, arrived)
			}
		}
	}
	// A route that names its parameters lets no other pass.
	if status, arrived := try("api.github.com", narrow, "X-Other: 1", "page=2&page=3"); status != "200" || arrived == "" {
		t.Errorf("page: %s, and there arrives %s", status, arrived)
	}
	if status, arrived := try("api.github.com", narrow, "X-Other: 1", "page=2&q=1"); status != "403" || arrived != "" {
		t.Errorf("q: %s, and there arrives %s", status, arrived)
	}
}
