package broker

import (
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/forge"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/route"
)

// hosted is a server of repositories, over TLS.
type hosted struct {
	*api
	*forge.Forge
}

func host(t *testing.T, http2 bool) hosted {
	t.Helper()
	f := forge.New(t, "x-access-token", canary)
	return hosted{newStreaming(t, http2, f.ServeHTTP), f}
}

// newStreaming is newAPI without its reading of bodies.
func newStreaming(t *testing.T, http2 bool, answer http.HandlerFunc) *api {
	t.Helper()
	a := newAPI(t, http2, nil)
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := r.Clone(t.Context())
		kept.Body = nil
		a.mu.Lock()
		a.got = append(a.got, kept)
		a.mu.Unlock()
		answer(w, r)
	})
	return a
}

// workplace is where git is called as an agent does.
type workplace struct {
	t   *testing.T
	dir string
	env []string
}

func newWorkplace(t *testing.T, r *rig) *workplace {
	w := &workplace{t: t, dir: t.TempDir()}
	home := t.TempDir()
	config := filepath.Join(home, "config")
	w.env = append(os.Environ(), "HOME="+home, "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@b", "LC_ALL=C", "GIT_CONFIG_SYSTEM="+config)
	rt, _ := route.Builtin("github") // filled as the keeper does
	text := strings.NewReplacer("{base}", "http://"+r.addr+"/github", "{token}", token, "{to}", rt.To, "{host}", "github.com").Replace(rt.Files[0].Head + rt.Files[0].Text)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *workplace) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// try calls git.
func (w *workplace) try(args ...string) (string, error) {
	c := exec.Command("git", args...)
	c.Dir, c.Env = w.dir, w.env
	out, err := c.CombinedOutput()
	return string(out), err
}

func (w *workplace) git(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

// fails calls git, which has to fail and say why.
func (w *workplace) fails(why string, args ...string) {
	w.t.Helper()
	if out, err := w.try(args...); err == nil || !strings.Contains(out, why) {
		w.t.Errorf("git %q: %v, without %q:\n%s", args, err, why, out)
	}
}

// hub has the route github lead to f.
func hub(t *testing.T, f hosted, g route.Git) *rig {
	rt, _ := route.Builtin("github")
	rt.To, rt.Git = "https://api.test/", g
	return start(t, f.api, func(s *setting) {
		s.Routes, s.Credentials = []route.Route{rt}, map[string][]byte{"github": []byte(canary)}
	})
}

// TestGit clones, fetches and pushes with git, in all versions of its protocol.
func TestGit(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		f := host(t, http2)
		at := f.Repo(t, "org/one.git")
		f.Repo(t, "other/two.git")
		r := hub(t, f, route.Git{Write: true, Repos: []string{"org/*"}, Branches: []string{"agent/*"}})
		for _, version := range []string{"0", "1", "2"} {
			w := newWorkplace(t, r)
			w.git("-c", "protocol.version="+version, "clone", "-q", "https://github.com/org/one", "by-name")
			w.git("-c", "protocol.version="+version, "clone", "-q", "--depth=1", "git@github.com:org/one.git", "by-ssh")
			w.fails("repository other/two is not on the list of route github", "clone", "-q", "https://github.com/other/two")
			if w.dir += "/by-name"; w.git("remote", "get-url", "origin") == "" || w.git("config", "remote.origin.url") != "https://github.com/org/one" {
				t.Error("the remote has lost its name")
			}
			w.write("file", "two\n")
			w.git("commit", "-q", "-a", "-m", "two")
			w.git("-c", "protocol.version="+version, "push", "-q", "origin", "HEAD:refs/heads/agent/v"+version)
			w.fails("is not among what route github may push", "push", "origin", "main", "HEAD:agent/x"+version)
			w.fails("remote rejected", "push", "origin", "--delete", "main")
			w.git("fetch", "-q", "--all")
			w.git("push", "-q", "origin", "HEAD:agent/gone")
			w.git("push", "-q", "origin", ":agent/gone")
		}
		if refs := f.Refs(t, at); !slices.Equal(refs, []string{"agent/v0", "agent/v1", "agent/v2", "main"}) {
			t.Errorf("the server has %s", refs)
		}
		for _, q := range f.requests() {
			if q.Header.Get("Authorization") == "" || strings.Contains(q.Header.Get("Authorization"), token) {
				t.Errorf("%s came with %v", q.URL, q.Header)
			}
		}
	}
}

// TestGitReads holds that nothing is pushed without the word for it, and that the reason is shown.
func TestGitReads(t *testing.T) {
	f := host(t, false)
	f.Repo(t, "org/one.git")
	w := newWorkplace(t, hub(t, f, route.Git{}))
	w.git("clone", "-q", "--filter=blob:none", "--no-checkout", "https://github.com/org/one", ".")
	w.fails("remote: refused by agent-init: route github reads from repository org/one, and does not push (git: write lets it)", "push", "origin", "HEAD:x")
	for _, q := range f.requests() {
		if strings.Contains(q.URL.String(), "receive-pack") {
			t.Errorf("it asked %s", q.URL)
		}
	}
}

// noise is what no compression makes less.
func noise(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}

// TestLargePush holds that a pack larger than any body that is held passes both ways, and is not kept.
func TestLargePush(t *testing.T) {
	f := host(t, true)
	f.Repo(t, "org/one.git")
	r := hub(t, f, route.Git{Write: true})
	w := newWorkplace(t, r)
	w.git("clone", "-q", "https://github.com/org/one", ".")
	large := noise(24 << 20)
	w.write("noise", large)
	w.git("config", "core.compression", "0")
	w.git("add", ".")
	w.git("commit", "-q", "-m", "noise")
	w.git("push", "-q", "origin", "HEAD:main")
	r.allFree()
	again := newWorkplace(t, r)
	again.git("clone", "-q", "https://github.com/org/one", ".")
	if got, err := os.ReadFile(again.dir + "/noise"); err != nil || string(got) != large {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	sent := int64(0)
	for len(r.events) > 0 {
		sent = max(sent, r.event().Sent)
	}
	if sent < int64(len(large)) {
		t.Errorf("the largest request is said to have had %d bytes", sent)
	}
}

// TestGitSubmodules clones what refers to other repositories, by a name and by a path beside it.
func TestGitSubmodules(t *testing.T) {
	f := host(t, false)
	for _, name := range []string{"org/one.git", "org/two.git", "org/three.git"} {
		f.Repo(t, name)
	}
	r := hub(t, f, route.Git{Write: true, Repos: []string{"org/*"}})
	w := newWorkplace(t, r)
	w.git("clone", "-q", "https://github.com/org/one", ".")
	w.git("submodule", "--quiet", "add", "git@github.com:org/two.git", "named")
	w.git("submodule", "--quiet", "add", "../three.git", "beside")
	w.git("commit", "-q", "-m", "submodules")
	w.git("push", "-q", "origin", "HEAD:main")
	again := newWorkplace(t, r)
	again.git("clone", "-q", "--recurse-submodules", "--jobs=2", "https://github.com/org/one", ".")
	for _, name := range []string{"named/file", "beside/file"} {
		if _, err := os.Stat(filepath.Join(again.dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestPeerGitLFS pushes and fetches a large file by git-lfs.
func TestPeerGitLFS(t *testing.T) {
	mustrun.Tool(t, "git-lfs")
	f := host(t, true)
	f.Repo(t, "org/one.git")
	r := hub(t, f, route.Git{Write: true})
	w := newWorkplace(t, r)
	w.git("clone", "-q", "git@github.com:org/one", ".")
	w.git("lfs", "install", "--local")
	w.git("lfs", "track", "*.bin")
	w.write("large.bin", strings.Repeat("large ", 1<<20))
	w.git("add", ".")
	w.git("commit", "-q", "-m", "large")
	if out := w.git("push", "origin", "HEAD:main"); strings.Contains(out, "warning") {
		t.Errorf("it says %s", out)
	}
	again := newWorkplace(t, r)
	again.git("lfs", "install", "--skip-repo")
	again.git("clone", "-q", "https://github.com/org/one.git", ".")
	if got, err := os.ReadFile(again.dir + "/large.bin"); err != nil || len(got) != 6<<20 {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}
