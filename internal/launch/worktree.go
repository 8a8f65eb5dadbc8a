package launch

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// offline is a variable of git's by which it fetches nothing. An agent that worked in a repository may have left an object
// out and named a server for it: git would ask there, by a program that the repository's settings choose.
const offline = "GIT_ALLOW_PROTOCOL=none"

// gitTime is how long git may take for what it is asked here, which is little. An agent may have left a pipe where it reads.
const gitTime = 10 * time.Second

// git is the output of the host's git in a directory. No hook and no filter runs by what is asked here.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), offline)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fault.New(fault.Failure, "see what "+quote(filepath.Join(dir, ".git"))+" has", "git does not answer: %w", ctx.Err())
	}
	if err != nil {
		if said := strings.TrimSpace(complaint.String()); said != "" {
			return "", fault.New(fault.Failure, "see git -C "+quote(dir)+" status", "git: %s", text.Clean(text.FirstLine(said)))
		}
		return "", fault.New(fault.Failure, "install git", "%w", err)
	}
	return strings.TrimRight(string(out), "\r\n"), nil
}

// repo is a repository of git's, as one of its worktrees knows it.
type repo struct {
	top    string          // the worktree that was asked
	main   string          // the first worktree
	common string          // the repository's own directory, which each worktree refers to by its path
	trees  map[string]bool // all worktrees, by their directory
}

// repoOf finds the repository that a directory belongs to. An agent that worked there may have led it to another one, for
// the next agent to get that: a repository that doesn't know the directory is refused.
func repoOf(ctx context.Context, dir string) (repo, error) {
	paths, err := git(ctx, dir, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
	if err != nil {
		return repo{}, fault.New(fault.Failure, "start it in a repository of git's, or leave --worktree out", "%w", err)
	}
	list, err := git(ctx, dir, "worktree", "list", "--porcelain")
	if err != nil {
		return repo{}, err
	}
	top, common, _ := strings.Cut(paths, "\n")
	r := repo{top: filepath.FromSlash(strings.TrimRight(top, "\r")), common: filepath.FromSlash(common), trees: map[string]bool{}}
	for line := range strings.Lines(list) {
		if path, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "worktree "); ok {
			path = filepath.FromSlash(path)
			if r.main == "" {
				r.main = path
			}
			r.trees[path] = true
		}
	}
	for _, path := range []string{r.top, r.main, r.common} {
		if err := shown(path); err != nil {
			return repo{}, err
		}
	}
	if !r.trees[r.top] {
		return repo{}, fault.New(fault.Failure, "see git -C "+quote(dir)+" worktree list", "%s says that it belongs to the repository %s, which does not know it", dir, r.common)
	}
	return r, nil
}

// worktree is where that of a name is, or will be, beside the repository; with the command that makes it, if there is
// none. What stands there and is none of the repository's is not taken for one. In one that is empty nothing was ever
// checked out.
func (r repo) worktree(ctx context.Context, name string) (dir string, add []string, empty bool, err error) {
	dir = r.main + "-" + name
	if _, err := os.Lstat(dir); err == nil {
		// An agent that worked in the repository may have written any directory into its list.
		if there, err := repoOf(ctx, dir); err == nil && there.top == dir && there.common == r.common {
			index, err := git(ctx, dir, "rev-parse", "--path-format=absolute", "--git-path", "index")
			if err == nil {
				_, err = os.Lstat(filepath.FromSlash(index))
			}
			return dir, nil, os.IsNotExist(err), nil
		}
		return "", nil, false, fault.New(fault.Failure, "give the worktree another name", "%s is there already, and is no worktree of %s", dir, r.main)
	}
	// An agent that worked in the repository may have left a hook there, or a filter for its files, and this would run it
	// on the host. So a container fills the worktree.
	add = []string{"git", "-C", r.main, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "worktree", "add", "--no-checkout"}
	if _, err := git(ctx, r.main, "rev-parse", "--verify", "--quiet", "refs/heads/"+name); err != nil {
		return dir, append(add, "-b", name, dir), true, nil
	}
	return dir, append(add, dir, name), true, nil
}

// fill checks out what a worktree has. A filter of git-lfs' is not there to run, and its files stay what they are. Whose
// the repository is, is no matter where there is nothing but it.
const fill = `cd ` + workspace + ` && HOME=/tmp git -c safe.directory='*' -c filter.lfs.required=false -c filter.lfs.smudge= -c filter.lfs.process= reset --quiet --hard`

// mounts are the worktree as the workspace, and both at their own paths: git finds the one by the path in the other,
// either way.
func (r repo) mounts(dir string) ([]string, error) {
	if !filepath.IsAbs(r.common) || strings.HasPrefix(r.common+"/", workspace+"/") || strings.Contains(r.common, `\`) {
		return nil, fault.New(fault.Usage, "start it in a directory elsewhere", "a worktree of %s can't be mounted at its own path", r.common)
	}
	return slices.Concat(mount(dir, workspace, false), mount(dir, dir, false), mount(r.common, r.common, false)), nil
}
