package broker

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/unread"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestPeerUnread: what a server leaves unread of a body is no request of it, neither by itself nor with what comes
// next, which brings the credential along. A small body is held, a push is streamed.
func TestPeerUnread(t *testing.T) {
	methods := []string{"POST", "PUT", "PATCH", "GET", "DELETE"}
	for _, kind := range unread.Kinds {
		for _, scheme := range []string{"https", "http"} {
			t.Run(kind+"/"+scheme, func(t *testing.T) {
				s := unread.Start(t, kind, scheme == "https")
				held := route.Route{
					Name: "held", To: scheme + "://api.test", Plaintext: true, Inject: route.Inject{Header: "x-api-key", Value: "{}"},
					Endpoints: []route.Endpoint{{Method: "GET", Path: "/*"}},
				}
				streamed := held
				streamed.Name, streamed.Git.Write = "streamed", true
				for _, method := range methods {
					held.Endpoints = append(held.Endpoints, route.Endpoint{Method: method, Path: "/*/*/first", Body: route.Opaque})
					streamed.Endpoints = append(streamed.Endpoints, route.Endpoint{Method: method, Path: "/*/*/first", Body: route.GitObject})
				}
				r := start(t, newAPI(t, false, nil), func(set *setting) {
					set.Dial, set.Roots, set.Routes = dialTo(s.Addr), s.Roots, []route.Route{held, streamed}
					set.Credentials = map[string][]byte{"held": []byte(canary), "streamed": []byte(canary)}
				})
				ask := func(method, path, body string) {
					if got := r.ask(method, path, body); got.StatusCode == 403 || got.StatusCode == 502 {
						t.Errorf("%s %s is answered with %s", method, path, got.text)
					}
				}
				for _, behind := range unread.Bodies(kind) {
					for _, path := range []string{"/held/a/b/first", "/streamed/a/b/first"} {
						for _, method := range methods {
							ask(method, path, behind)
							ask("GET", "/held/next", "")
						}
					}
				}
				ask("GET", "/held/last", "")
				for _, asked := range s.Asked(t, "GET /last") {
					if strings.Contains(asked, "admin") {
						t.Fatalf("the server has done what nobody allowed: %s", asked)
					}
				}
			})
		}
	}
}
