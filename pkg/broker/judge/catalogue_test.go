package judge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// asked is a request that is judged as the broker does.
type asked struct {
	route, path, body string
	change            func(*route.Route) // of the route, by the policy
}

// endpoint is what a request asks for.
func (a asked) endpoint(t testing.TB) (r *route.Route, e *route.Endpoint, path string) {
	t.Helper()
	r = builtin(t, a.route)
	if a.change != nil {
		a.change(r)
	}
	path, query, _ := strings.Cut(a.path, "?")
	e, refusal := Head(r, "POST", path, query, http.Header{"Content-Type": {"application/json"}})
	if refusal != nil {
		t.Fatalf("%s: %s", a.path, refusal.Text)
	}
	return r, e, path
}

// refuses holds that a request is refused for what, however it is spelt. An empty what is any.
func (a asked) refuses(t *testing.T, name, what string) {
	t.Helper()
	r, e, path := a.endpoint(t)
	if got := verdict(t, r, e, path, a.body); got == "" {
		t.Errorf("%s: it passes: %.300s", name, a.body)
	} else if got != what && what != "" {
		_, refusal := Body(r, e, path, []byte(a.body))
		t.Errorf("%s: it is refused for %s (%s), and not for %s", name, got, refusal.Text, what)
	}
}

// passes holds that a request passes, however it is spelt.
func (a asked) passes(t *testing.T, name string, want Told) {
	t.Helper()
	r, e, path := a.endpoint(t)
	told, refusal := Body(r, e, path, []byte(a.body))
	told.Rested = nil
	if refusal != nil {
		t.Errorf("%s: it is refused: %s", name, refusal.Text)
	} else if told != want {
		t.Errorf("%s: it is taken for %+v, want %+v", name, told, want)
	}
	if got := verdict(t, r, e, path, a.body); got != "" && refusal == nil {
		t.Errorf("%s: it is refused for %s in another spelling", name, got)
	}
}

// with fills the place %s of a frame.
func with(frame, inner string) string { return strings.Replace(frame, "%s", inner, 1) }

// allow is a change of a route that admits what the provider runs.
func allow(tools ...string) func(*route.Route) {
	return func(r *route.Route) { r.ProviderTools = tools }
}
