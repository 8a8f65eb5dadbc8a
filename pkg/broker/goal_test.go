package broker

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestOtherServer holds that an endpoint that leads to another server than the route's gets there without anything that
// the route puts on, and that both are the only ones.
func TestOtherServer(t *testing.T) {
	a := newAPI(t, false, nil)
	var asked []string
	r := start(t, a, func(s *setting) {
		rt := &s.Routes[0]
		rt.Add = []route.Header{{Name: "X-Tenant", Value: "acme"}}
		rt.Endpoints = append(rt.Endpoints, route.Endpoint{Method: "GET", Path: "/files/**", To: "https://files.test:8443/of"})
		dial := s.Dial
		s.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
			asked = append(asked, net.JoinHostPort(host, "x"))
			return dial(ctx, "", 0)
		}
		a.TLS.Certificates = append(a.TLS.Certificates, a.ca.sign(t, "files.test", time.Now().Add(time.Hour)))
	})
	for path, want := range map[string]struct{ path, host, key, tenant string }{
		"/r/get":         {"/base/get", "api.test", canary, "acme"},
		"/r/files/a%20b": {"/of/files/a%20b", "files.test:8443", "", ""},
	} {
		before := len(a.requests())
		if got := r.ask("GET", path, ""); got.StatusCode != 200 {
			t.Fatalf("%s: %d %s", path, got.StatusCode, got.text)
		}
		q := a.requests()[before]
		if q.RequestURI != want.path || q.Host != want.host || q.Header.Get("X-Api-Key") != want.key || q.Header.Get("X-Tenant") != want.tenant {
			t.Errorf("%s arrived as %s of %s with %v", path, q.RequestURI, q.Host, q.Header)
		}
	}
	if all := strings.Join(asked, " "); strings.Count(all, "api.test") != 1 || strings.Count(all, "files.test") != 1 {
		t.Errorf("connected to %s", all)
	}
	rt := opaque("r")
	rt.Endpoints[0].To = "ftp://files.test"
	err := r.Load(Loaded{Routes: []route.Route{rt}, Credentials: map[string][]byte{"r": []byte(canary)}, Roots: a.ca.pool()})
	if err == nil || !strings.Contains(err.Error(), "GET /get") {
		t.Errorf("an endpoint that leads nowhere is served: %v", err)
	}
}
