package judge

import (
	"regexp"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// inspected are the rules that a policy has of api.test, and whether it is one.
func inspected(entries ...string) (*route.Inspected, bool) {
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "a", Data: []byte(strings.Join(entries, "\n") + "\n")}}}, nil)
	if err != nil || len(p.Settings.Inspected) != 1 {
		return nil, false
	}
	return &p.Settings.Inspected[0], true
}

// lettersAlike finds letters that are not ASCII: some of them look like a slash, and then nothing passes.
var lettersAlike = regexp.MustCompile(`%[89A-F]`)

// FuzzPatterns holds that what a policy takes for a pattern is one here: a path without a star allows itself, and is
// denied by itself.
func FuzzPatterns(f *testing.F) {
	for _, path := range []string{
		"/", "/**", "/repos/my-org/**", "/api/v4/projects/my-org%2Frepo/**", "/a%20b", "/a%3Bb", "/C%23/%C3%A4", "/v1/models/*:generate", "/a*b*/c", "/...", "/a;b", "/%20", "/x%2F..%2Fy",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.ContainsAny(path, " \t\r\n#") {
			return
		}
		i, ok := inspected("api.test GET "+path, "!api.test POST "+path, "api.test POST /**")
		if !ok {
			return
		}
		if lettersAlike.MatchString(path) || strings.Contains(path, "*") {
			return
		}
		for method, passes := range map[string]bool{"GET": true, "POST": false} {
			if _, refusal := Inspected(i, method, path, "", nil); (refusal == nil) != passes {
				t.Errorf("%s %s: %+v", method, path, refusal)
			}
		}
	})
}

// TestWordsOfPolicies has requests judged by what a policy says of them, in its words.
func TestWordsOfPolicies(t *testing.T) {
	i, ok := inspected(
		"api.test GET,HEAD /repos/my-org/**", "api.test POST /graphql graphql=query", "!api.test * /repos/my-org/secrets/**", "api.test POST /up max_upload=64KiB", "api.test GET /live websocket",
		"api.test PUT /api/v4/projects/my-org%2F*/notes", "api.test DELETE /none max_upload=0",
	)
	if !ok {
		t.Fatal("the policy is not taken")
	}
	for request, want := range map[string]string{
		"GET /repos/my-org/a": "", "HEAD /repos/my-org": "", "POST /repos/my-org/a": "method", "GET /repos/my-org/secrets": "denied", "GET /repos/my-org/Secrets.json": "denied",
		"POST /graphql": "", "GET /graphql": "method", "PUT /api/v4/projects/my-org%2fa/notes": "", "PUT /api/v4/projects/my-org/a/notes": "path", "PUT /api/v4/projects/my-org%2Fa%2Fb/notes": "path",
		"POST /up": "", "GET /live": "", "DELETE /none": "", "GET /": "path",
	} {
		method, path, _ := strings.Cut(request, " ")
		got := ""
		admitted, refusal := Inspected(i, method, path, "", nil)
		if refusal != nil {
			got = refusal.What
		}
		if got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
		switch {
		case refusal != nil:
		case path == "/graphql" && admitted.GraphQL != route.GraphQLQuery, path == "/up" && admitted.MaxUpload != 64<<10, path == "/none" && admitted.MaxUpload != -1:
			t.Errorf("%s: %+v", request, admitted)
		}
	}
}
