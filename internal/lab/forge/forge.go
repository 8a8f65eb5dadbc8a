// Package forge is a server of repositories that nobody here wrote: git's own http-backend. It takes one token.
package forge

import (
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// Forge serves the repositories below Root to who shows the key as the user's password.
type Forge struct {
	Root, User, Key string
	backend         cgi.Handler
}

// New has no repository yet.
func New(tb testing.TB, user, key string) *Forge {
	tb.Helper()
	out, err := exec.Command(mustrun.Tool(tb, "git"), "--exec-path").Output()
	if err != nil {
		tb.Fatal(err)
	}
	f := &Forge{Root: tb.TempDir(), User: user, Key: key}
	f.backend = cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), InheritEnv: []string{"PATH"}, Stderr: io.Discard,
		Env: []string{
			"GIT_PROJECT_ROOT=" + f.Root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + user,
			"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=uploadpack.allowFilter", "GIT_CONFIG_VALUE_1=true",
		},
	}
	if _, err := os.Stat(f.backend.Path); err != nil {
		mustrun.Lacks(tb, "%v", err)
	}
	return f
}

func (f *Forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, key, _ := r.BasicAuth(); user != f.User || key != f.Key {
		w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if _, _, ok := strings.Cut(r.URL.Path, "/info/lfs/"); ok {
		f.largeFiles(w, r)
		return
	}
	h := f.backend
	h.Env = append(h.Env[:len(h.Env):len(h.Env)], "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
	r.TransferEncoding = nil // which package cgi refuses; the backend reads to the end
	h.ServeHTTP(w, r)
}

// Backend is the program that serves.
func (f *Forge) Backend() string { return f.backend.Path }

// Repo makes a bare repository with one commit on main, which has a file.
func (f *Forge) Repo(tb testing.TB, name string) (path string) {
	tb.Helper()
	path = filepath.Join(f.Root, name)
	work := tb.TempDir()
	if err := os.WriteFile(filepath.Join(work, "file"), []byte("one\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "-q", "--bare", "-b", "main", path}, {"init", "-q", "-b", "main", "."}, {"add", "."}, {"commit", "-q", "-m", "one"}, {"push", "-q", path, "main"},
	} {
		c := exec.Command("git", args...)
		c.Dir = work
		c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		if out, err := c.CombinedOutput(); err != nil {
			tb.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return path
}

// Refs are those of a repository, in short.
func (f *Forge) Refs(tb testing.TB, path string) []string {
	tb.Helper()
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", path, "for-each-ref", "--format=%(refname:short)").Output()
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(out))
}
