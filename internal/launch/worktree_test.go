package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWorktreeOfAnother: a directory that was led to another repository does not give the agent that.
func TestWorktreeOfAnother(t *testing.T) {
	mine, other := t.TempDir(), t.TempDir()
	newRepository(t, mine)
	newRepository(t, other)
	if _, err := repoOf(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mine, ".git/commondir"), other+"/.git\n")
	if r, err := repoOf(t.Context(), mine); err == nil {
		t.Errorf("by commondir: %+v", r)
	}
	if err := os.RemoveAll(filepath.Join(mine, ".git")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mine, ".git"), "gitdir: "+other+"/.git\n")
	if r, err := repoOf(t.Context(), mine); err == nil {
		t.Errorf("by a file: %+v", r)
	}
	p := new(Plan)
	if mounts := p.linked(t.Context(), mine); mounts != nil {
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
	if got := strings.Join(p.linked(t.Context(), linked), " "); got != "-v "+want || len(p.Notes) != 1 {
		t.Errorf("%s, want %s; %q", got, want, p.Notes)
	}
	if mounts := p.linked(t.Context(), repository); mounts != nil {
		t.Errorf("of the repository itself: %q", mounts)
	}
	r, err := repoOf(t.Context(), linked)
	if err != nil {
		t.Fatal(err)
	}
	if dir, add, empty, err := r.worktree(t.Context(), "y"); dir != linked || add != nil || empty || err != nil {
		t.Errorf("%s, %q, %v, %v", dir, add, empty, err)
	}
	// What stands in the list and is no worktree is none.
	private := filepath.Join(top, "r-private")
	newRepository(t, private)
	write(t, filepath.Join(repository, ".git/worktrees/forged/gitdir"), private+"/.git\n")
	write(t, filepath.Join(repository, ".git/worktrees/forged/HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(repository, ".git/worktrees/forged/commondir"), "../..\n")
	if r, err = repoOf(t.Context(), linked); err != nil || !r.trees[private] {
		t.Fatalf("%+v, %v", r, err)
	}
	if dir, _, _, err := r.worktree(t.Context(), "private"); err == nil {
		t.Errorf("forged: %s", dir)
	}
	if dir, add, empty, err := r.worktree(t.Context(), "z"); dir != repository+"-z" || !slices.Contains(add, "-b") || !empty || err != nil {
		t.Errorf("%s, %q, %v, %v", dir, add, empty, err)
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

// TestGitIsNotWaitedFor: an agent may have left a pipe where git reads, which nobody ever writes to.
func TestGitIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newRepository(t, dir)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".git/config"), "[include]\n\tpath = "+pipe+"\n")
	ended := make(chan error, 1)
	go func() {
		_, err := git(t.Context(), dir, "config", "--get", "user.name")
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("git is waited for")
	}
}

// TestWorktreeOfHostileRepository: an agent that has worked in a repository gets no program of its own run on the host by
// a worktree, and none of the host's directories by a link.
func TestWorktreeOfHostileRepository(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, ran := filepath.Join(top, "r"), filepath.Join(top, "ran")
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
	hooks := filepath.Join(dir, ".git/hooks")
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction"} {
		write(t, filepath.Join(hooks, hook), "#!/bin/sh\ntouch '"+ran+"'\n")
		if err := os.Chmod(filepath.Join(hooks, hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	evil := "touch '" + ran + "'; cat"
	for key, value := range map[string]string{
		"filter.evil.smudge": evil, "core.fsmonitor": evil, "core.pager": evil, "core.repositoryformatversion": "1",
		"extensions.partialClone": "evil", "remote.evil.promisor": "true", "remote.evil.url": "ext::sh -c touch% " + ran, "protocol.ext.allow": "always",
	} {
		do("config", key, value)
	}
	write(t, filepath.Join(dir, ".git/refs/heads/absent"), strings.Repeat("1", 40)+"\n")
	quiet := func(after string) {
		t.Helper()
		if _, err := os.Lstat(ran); err == nil {
			t.Fatal("a program of the repository's ran by " + after)
		}
	}

	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "", "agent-claude:latest")
	plan := func(tree string) Plan {
		t.Helper()
		p, err := f.Plan(t.Context(), Options{Agent: "claude", Dir: dir, Worktree: tree, Detach: true}, Host{UID: 1234, GID: 100})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := plan("absent").Start(t.Context()); err == nil {
		t.Error("a commit that is not there was checked out")
	}
	quiet("a commit that is not there")
	p := plan("new")
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	quiet("a new worktree")
	if calls := f.calls(t); !strings.Contains(calls, "--user=1234:100\n") || !strings.Contains(calls, "\n"+fill+"\n") {
		t.Errorf("who fills the worktree?\n%s", calls)
	}
	// The stand-in has not filled it, and so the next start does. Here nothing holds the filter but its name.
	if p = plan("new"); len(p.steps) != 1 {
		t.Fatalf("a worktree that is empty: %v", p.steps)
	}
	do("config", "filter.evil.smudge", "cat")
	if out, err := exec.Command("sh", "-c", strings.Replace(fill, workspace, dir+"-new", 1)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if data, err := os.ReadFile(filepath.Join(dir+"-new", "file")); err != nil || string(data) != "what is committed\n" {
		t.Errorf("%q, %v", data, err)
	}
	if p = plan("new"); len(p.steps) != 0 {
		t.Errorf("a worktree that is full: %v", p.steps)
	}

	private := filepath.Join(top, "private")
	if err := os.Rename(filepath.Join(dir, ".git"), private); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(private, filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "a symbolic link") {
		t.Errorf("another directory stands where the repository was: %v", err)
	}
}
