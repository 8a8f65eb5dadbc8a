package judge

import (
	"net/http"
	"slices"
	"testing"

	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestWithin: a request passes if policy and ceiling both let it, and its body keeps to what both say.
func TestWithin(t *testing.T) {
	lists := []string{
		"a.example", "a.example read", "a.example GET /x/**", "a.example * /x/*/y", "a.example GET,POST /x/a max_upload=9", "a.example * /**\n!a.example POST /x/b",
		"*.a.example * /** websocket", "*.a.example GET /x/b\na.example POST /x/b max_upload=20", "a.example POST /g graphql=query", "a.example GET /x/** max_upload=5\na.example * /x/a",
	}
	parse := func(files, ceiling string) *policy.Policy {
		b := &policy.Bundle{Files: []policy.File{{Name: "p.txt", Data: []byte(files)}}}
		if ceiling != "" {
			b.Ceiling = []policy.File{{Name: "c.txt", Data: []byte(ceiling)}}
		}
		p, err := policy.Parse(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	type asked struct{ method, path string }
	var all []asked
	for _, m := range []string{"GET", "HEAD", "POST", "DELETE"} {
		for _, p := range []string{"/", "/x", "/x/a", "/x/b", "/x/a/y", "/g", "/other"} {
			all = append(all, asked{m, p})
		}
	}
	socket := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	// passes says what of a request passes: the largest body, -1 for none, and whether it has to be a query.
	passes := func(p *policy.Policy, a asked, h http.Header) (is bool, most int64, query bool) {
		if !p.Decide("a.example", policy.HTTPS).Allowed {
			return false, 0, false
		}
		i := route.FindInspected(p.Settings.Inspected, "a.example", 443)
		if i == nil {
			return true, 1 << 40, false
		}
		admitted, refusal := Inspected(i, a.method, a.path, "", h)
		if refusal != nil {
			return false, 0, false
		}
		if most = admitted.MaxUpload; most == 0 {
			most = 1 << 40
		}
		return true, most, admitted.GraphQL != ""
	}
	seen := map[bool]int{}
	for _, mine := range lists {
		for _, top := range lists {
			p, c, e := parse(mine, ""), parse(top, ""), parse(mine, top)
			for _, a := range all {
				for _, h := range []http.Header{{}, socket} {
					byP, mostP, queryP := passes(p, a, h)
					byC, mostC, queryC := passes(c, a, h)
					is, most, query := passes(e, a, h)
					seen[is]++
					if is != (byP && byC) || is && (most > min(mostP, mostC) || query != (queryP || queryC)) {
						t.Fatalf("%v of %q below %q: %v (%d, %v), by itself %v (%d), by the ceiling %v (%d)", a, mine, top, is, most, query, byP, mostP, byC, mostC)
					}
				}
			}
		}
	}
	if slices.Min([]int{seen[true], seen[false]}) < 100 {
		t.Errorf("too few of a kind: %v", seen)
	}
}
