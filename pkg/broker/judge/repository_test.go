package judge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestRepositories holds which repositories are reached, whatever their spelling.
func TestRepositories(t *testing.T) {
	for _, tt := range []struct {
		repos, yes, no string
	}{
		{repos: "My-Org/*", yes: "my-org/a my-org/A.git MY-ORG/b.js my-org/a.wiki.git my-org/a.git.git",
			no: "my-org2/a xmy-org/a other/my-org my-org.git/a my-org./a my-org%2Fa/b -my-org/a .my-org/a"},
		{repos: "my-org/one", yes: "my-org/one my-org/one.git", no: "My-Org/ONE.GIT my-org/one.wiki my-org/two my-org/one.git.git my-org/ my-org/.git my-org/one;x my-org/one@x my-org/one%20 my-org/øne"},
		{repos: "my-org/web-* other/x", yes: "my-org/web-a other/x", no: "my-org/web- my-org/web other/y"},
		{repos: "group/**", yes: "group/a group/a/b", no: "group other/group/a groups/a"},
		{repos: "", yes: "a/b c/d.git", no: "a/.. a/. a//b"},
	} {
		r, _ := route.Builtin("git")
		r.Git.Repos = strings.Fields(tt.repos)
		check := func(name string, want bool) {
			_, refused := Head(&r, "GET", "/"+name+"/info/refs", "service=git-upload-pack", http.Header{})
			if (refused == nil) != want {
				t.Errorf("repos %q: %s: %v", tt.repos, name, refused)
			}
		}
		for _, name := range strings.Fields(tt.yes) {
			check(name, true)
		}
		for _, name := range strings.Fields(tt.no) {
			check(name, false)
		}
	}
}

// TestReadOnly holds that a push ends at its first request.
func TestReadOnly(t *testing.T) {
	r, _ := route.Builtin("github")
	head := http.Header{"Content-Type": {"application/x-git-receive-pack-request"}}
	for _, ask := range []struct{ method, path, query string }{
		{"GET", "/o/r/info/refs", "service=git-receive-pack"}, {"POST", "/o/r.git/git-receive-pack", ""},
	} {
		for _, write := range []bool{false, true} {
			r.Git.Write = write
			_, refused := Head(&r, ask.method, ask.path, ask.query, head)
			if (refused == nil) != write || refused != nil && !strings.Contains(refused.Text, "git: write") {
				t.Errorf("%s %s, write %v: %v", ask.method, ask.path, write, refused)
			}
		}
	}
}
