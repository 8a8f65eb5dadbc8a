package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWorktreeOfAnother: a directory that was led to another repository does not give the agent that.
func TestWorktreeOfAnother(t *testing.T) {
	mine, other := t.TempDir(), t.TempDir()
	newRepository(t, mine)
	newRepository(t, other)
	if _, err := repoOf(mine); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mine, ".git/commondir"), other+"/.git\n")
	if r, err := repoOf(mine); err == nil {
		t.Errorf("by commondir: %+v", r)
	}
	if err := os.RemoveAll(filepath.Join(mine, ".git")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mine, ".git"), "gitdir: "+other+"/.git\n")
	if r, err := repoOf(mine); err == nil {
		t.Errorf("by a file: %+v", r)
	}
	p := new(Plan)
	if mounts := p.linked(mine); mounts != nil {
		t.Errorf("as its worktree: %q", mounts)
	}
}

// TestWorktreeOfOnesOwn: who starts in a worktree gets the repository with it, or git would not work there.
func TestWorktreeOfOnesOwn(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repository, linked := filepath.Join(top, "r"), filepath.Join(top, "r-y")
	newRepository(t, repository)
	if out, err := exec.Command("git", "-C", repository, "worktree", "add", "-q", linked).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := new(Plan)
	want := strings.Join([]string{linked + ":/workspace", linked + ":" + linked, repository + "/.git:" + repository + "/.git"}, " -v ")
	if got := strings.Join(p.linked(linked), " "); got != "-v "+want || len(p.Notes) != 1 {
		t.Errorf("%s, want %s; %q", got, want, p.Notes)
	}
	if mounts := p.linked(repository); mounts != nil {
		t.Errorf("of the repository itself: %q", mounts)
	}
	r, err := repoOf(linked)
	if err != nil {
		t.Fatal(err)
	}
	if dir, missing, empty, err := r.worktree("y"); dir != linked || missing || empty || err != nil {
		t.Errorf("%s, %v, %v, %v", dir, missing, empty, err)
	}
	// What stands in the list and is no worktree is none.
	private := filepath.Join(top, "r-private")
	newRepository(t, private)
	write(t, filepath.Join(repository, ".git/worktrees/forged/gitdir"), private+"/.git\n")
	write(t, filepath.Join(repository, ".git/worktrees/forged/HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(repository, ".git/worktrees/forged/commondir"), "../..\n")
	if dir, _, _, err := r.worktree("private"); err == nil {
		t.Errorf("forged: %s", dir)
	}
	if dir, missing, empty, err := r.worktree("z"); dir != repository+"-z" || !missing || !empty || err != nil {
		t.Errorf("%s, %v, %v, %v", dir, missing, empty, err)
	}
}

// TestWorktreeHasOneName: a container is named by where its agent works, wherever the start was typed, so that what was
// allowed for good there is not in force in another worktree.
func TestWorktreeHasOneName(t *testing.T) {
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "", "agent-claude:latest")
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "r")
	newRepository(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := func(o Options) string {
		t.Helper()
		o.Agent = "claude"
		p, err := f.Plan(t.Context(), o, Host{UID: -1})
		if err != nil {
			t.Fatal(err)
		}
		return p.Name
	}
	long := strings.Repeat("x", 50)
	seen := map[string]string{name(Options{Dir: dir}): "itself"}
	for _, tree := range []string{"fix", "fix-", "fix_", long + "1", long + "2"} {
		n := name(Options{Dir: dir, Worktree: tree})
		if other, taken := seen[n]; taken {
			t.Errorf("%s and %s are both %s", tree, other, n)
		}
		seen[n] = tree
	}
	from := name(Options{Dir: dir, Worktree: "fix"})
	if below := name(Options{Dir: filepath.Join(dir, "below"), Worktree: "fix"}); below != from {
		t.Errorf("from below: %s, not %s", below, from)
	}
	if out, err := exec.Command("git", "-C", dir, "worktree", "add", "-q", dir+"-fix").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if inside := name(Options{Dir: dir + "-fix"}); inside != from {
		t.Errorf("from within: %s, not %s", inside, from)
	}
}

// TestHostileRepository: an agent that has worked in a repository gets no program of its own run on the host by a start,
// none of the host's files written by way of a link, and none of its directories mounted.
func TestHostileRepository(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, ran, victim := filepath.Join(top, "r"), filepath.Join(top, "ran"), write(t, filepath.Join(top, "bashrc"), "mine\n")
	newRepository(t, dir)
	do := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	write(t, filepath.Join(dir, ".gitattributes"), "* filter=evil\n")
	write(t, filepath.Join(dir, "file"), "what is committed\n")
	do("add", ".")
	do("commit", "-q", "-m", "two")
	config, err := os.ReadFile(filepath.Join(dir, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	evil := "touch '" + ran + "'; cat"
	script := "#!/bin/sh\ntouch '" + ran + "'\n"
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction"} {
		write(t, filepath.Join(dir, ".git/hooks", hook), script)
	}
	for key, value := range map[string]string{
		"filter.evil.smudge": evil, "core.fsmonitor": evil, "core.pager": evil, "core.repositoryformatversion": "1",
		"hook.x.command": evil, "hook.x.event": "post-checkout", "core.sshCommand": evil, "alias.config": "!" + evil, "core.worktree": "/",
		"extensions.partialClone": "evil", "remote.evil.promisor": "true", "remote.evil.url": "ext::sh -c touch% " + ran, "protocol.ext.allow": "always",
	} {
		do("config", key, value)
	}
	for _, log := range []string{"HEAD", "refs/heads/new"} {
		path := filepath.Join(dir, ".git/logs", log)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Symlink(victim, path)); err != nil {
			t.Fatal(err)
		}
	}
	// The newest git runs what hook.x.command says, whatever other settings say. No git of the host's may look there.
	bin, venv := filepath.Join(top, "bin"), filepath.Join(dir, ".venv/bin")
	write(t, filepath.Join(bin, "git"), "#!/bin/sh\ncase \"$PWD $* $GIT_DIR\" in *'"+dir+"'*) touch '"+ran+"' ;; esac\n")
	for _, program := range []string{"git", "docker", "podman", "mkdir", "sh"} {
		write(t, filepath.Join(venv, program), script)
	}
	all, err := filepath.Glob(filepath.Join(venv, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range append(all, filepath.Join(bin, "git"), filepath.Join(dir, ".git/hooks/post-checkout")) {
		if err := os.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "", "agent-claude:latest")
	t.Setenv("PATH", venv+":"+filepath.Join(dir, "later")+":.:"+bin+":"+os.Getenv("PATH"))
	quiet := func(after string) {
		t.Helper()
		if _, err := os.Lstat(ran); err == nil {
			t.Fatal("a program of the repository's ran by " + after)
		}
		if data, err := os.ReadFile(victim); err != nil || string(data) != "mine\n" {
			t.Fatalf("a file of the host's was written by %s: %q, %v", after, data, err)
		}
	}
	plan := func(tree string) Plan {
		t.Helper()
		Distrust(dir)
		if e, err := Find(t.Context(), "docker"); err != nil || e.Path != f.Path {
			t.Fatalf("%s, %v", e.Path, err)
		}
		p, err := f.Plan(t.Context(), Options{Agent: "claude", Dir: dir, Worktree: tree, Detach: true}, Host{UID: 1234, GID: 100})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := plan("").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	quiet("a start")
	f.calls(t)
	p := plan("new")
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	quiet("a new worktree")
	if calls := f.calls(t); !strings.Contains(calls, "--network=none\n") || !strings.Contains(calls, "--user=1234:100\n") || !strings.Contains(calls, "\n"+fill+"\nsh\n"+dir+"/.git\n"+dir+"-new\nnew\n") {
		t.Errorf("who fills the worktree?\n%s", calls)
	}
	// The stand-in has not filled it, and so the next start does. Here nothing holds what the repository names.
	if p = plan("new"); len(p.steps) != 1 {
		t.Fatalf("a worktree that is empty: %v", p.steps)
	}
	write(t, filepath.Join(dir, ".git/config"), string(config))
	for _, gone := range []string{"logs", "hooks"} {
		if err := os.RemoveAll(filepath.Join(dir, ".git", gone)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // again, as after a start that was ended on the way
		if out, err := exec.Command("/bin/sh", "-c", "PATH=/usr/bin:/bin; "+fill, "sh", dir+"/.git", dir+"-new", "new").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir+"-new", "file")); err != nil || string(data) != "what is committed\n" {
		t.Errorf("%q, %v", data, err)
	}
	if p = plan("new"); len(p.steps) != 0 {
		t.Errorf("a worktree that is full: %v", p.steps)
	}

	private := filepath.Join(top, "private")
	if err := errors.Join(os.Rename(filepath.Join(dir, ".git"), private), os.Symlink(private, filepath.Join(dir, ".git"))); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "a symbolic link") {
		t.Errorf("another directory stands where the repository was: %v", err)
	}
	if _, err := f.Plan(t.Context(), Options{Agent: "claude", Dir: dir, Worktree: "new"}, Host{UID: 1234, GID: 100}); err == nil {
		t.Error("the same, from the start")
	}
}

// TestEngineOfTheAgents: an engine's program in the directory that the agent gets is not asked for a start there.
func TestEngineOfTheAgents(t *testing.T) {
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "", "agent-claude:latest")
	if _, err := f.Plan(t.Context(), Options{Agent: "claude", Dir: f.dir}, Host{UID: -1}); err == nil || !strings.Contains(remedyOf(err), "PATH") {
		t.Error(err)
	}
}

// TestNothingIsWaitedFor: an agent may have left a pipe, which nobody ever writes to, or a file without an end, wherever
// a start reads.
func TestNothingIsWaitedFor(t *testing.T) {
	for _, at := range []string{".git", ".git/HEAD", ".git/config", ".git/commondir"} {
		for what, put := range map[string]func(path string) error{
			"a pipe":       func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"a device":     func(path string) error { return os.Symlink("/dev/zero", path) },
			"another file": func(path string) error { return os.Symlink("/etc/passwd", path) },
			"a directory":  func(path string) error { return os.Mkdir(path, 0o700) },
			"a large file": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 2<<20)), 0o600) },
		} {
			dir := filepath.Join(t.TempDir(), "r")
			newRepository(t, dir)
			path := filepath.Join(dir, at)
			if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
				t.Fatal(err)
			}
			for _, tree := range []string{"", "x"} {
				p := Plan{host: Host{UID: -1}}
				identity(t.Context(), dir, nil)
				_, err := p.mounted(Options{Agent: "claude", Dir: dir, Worktree: tree})
				if tree == "" && err != nil || tree != "" && at != ".git/config" && err == nil {
					t.Errorf("%s at %s, worktree %q: %v, %v", what, at, tree, p.steps, err)
				}
			}
		}
	}
}

// TestIdentity: git's names are those of the person's own settings, also where these depend on the directory. What the
// repository says is left to git in the container, and nothing is read from where the repository points.
func TestIdentity(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "src/r")
	newRepository(t, dir)
	work := write(t, filepath.Join(top, "work.config"), "[user]\n\temail = ada@work.example\n")
	t.Setenv("GIT_CONFIG_GLOBAL", write(t, filepath.Join(top, "config"), "[user]\n\tname = Ada\n\temail = ada@home.example\n[includeIf \"gitdir:~/src/\"]\n\tpath = "+work+"\n"))
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("HOME", top)
	t.Setenv("GIT_DIR", dir+"/.git")
	env := map[string]string{"HOME": top}
	for config, want := range map[string]string{
		"":                             "GIT_AUTHOR_NAME=Ada GIT_COMMITTER_NAME=Ada GIT_AUTHOR_EMAIL=ada@work.example GIT_COMMITTER_EMAIL=ada@work.example",
		"[user]\n\tname = Other\n":     "GIT_AUTHOR_EMAIL=ada@work.example GIT_COMMITTER_EMAIL=ada@work.example",
		"[user]\nemail=x\n[a]\nname=b": "GIT_AUTHOR_NAME=Ada GIT_COMMITTER_NAME=Ada",
		"[include]\n\tpath = " + work:  "GIT_AUTHOR_NAME=Ada GIT_COMMITTER_NAME=Ada GIT_AUTHOR_EMAIL=ada@work.example GIT_COMMITTER_EMAIL=ada@work.example",
	} {
		write(t, filepath.Join(dir, ".git/config"), config)
		if got := strings.Join(identity(t.Context(), dir, env), " "); got != want {
			t.Errorf("%q: %s, want %s", config, got, want)
		}
	}
	elsewhere := filepath.Join(top, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(identity(t.Context(), elsewhere, env), " "); !strings.Contains(got, "ada@home.example") {
		t.Error(got)
	}
}
