package inspect

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/unread"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestPeerUnread: what a server leaves unread of a body is no request of it, neither by itself nor with what
// comes next.
func TestPeerUnread(t *testing.T) {
	for _, kind := range unread.Kinds {
		for _, by := range []string{"tls", "plain", "proxy"} {
			t.Run(kind+"/"+by, func(t *testing.T) {
				s := unread.Start(t, kind, by == "tls")
				scheme := "https"
				r := start(t, nil, func(set *setting) {
					set.at, set.Roots = s.Addr, s.Roots
					set.Inspected = any443(route.Request{Methods: []string{"GET", "HEAD", "POST", "PUT", "PATCH"}, Rule: "p:1", MaxUpload: 1 << 20})
					if by != "tls" {
						scheme, set.port, set.plain = "http", 80, true
						set.Inspected[0].Port, set.Inspected[0].Plain = 80, true
					}
					if by == "proxy" {
						set.proxy = func() (string, bool) { return "", true }
					}
				})
				c := r.client(false)
				ask := func(method, path, body string, headers ...string) {
					q, err := http.NewRequest(method, scheme+"://"+name+path, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					for _, h := range headers {
						q.Header.Set(h, "100-continue")
					}
					if got := r.do(c, q); got.StatusCode == 403 {
						t.Errorf("%s %s is answered with %s", method, path, got.text)
					}
				}
				for _, behind := range unread.Bodies(kind) {
					for _, method := range []string{"POST", "PUT", "PATCH", "GET", "HEAD"} {
						ask(method, "/first", behind)
						ask("GET", "/next", "")
					}
					for range 20 { // net/http may send the answer before or after the client's body comes
						ask("POST", "/first", behind, "Expect")
						ask("GET", "/next", "")
					}
				}
				ask("GET", "/last", "")
				for _, asked := range s.Asked(t, "GET /last") {
					if strings.Contains(asked, "admin") {
						t.Fatalf("the server has done what nobody allowed: %s", asked)
					}
				}
			})
		}
	}
}
