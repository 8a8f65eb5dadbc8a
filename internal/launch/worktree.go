package launch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
)

// An agent may have written all that a repository has: settings that name programs, links to elsewhere, pipes that nobody
// writes to. So no git runs in one on the host. What has to be known of it is read here, and git runs in a container.

// maxRef is the size of git's files that are read here, which have a path or a name, in bytes.
const maxRef = 8 << 10

// readOwn reads a small file that must not be a link, nor anything else that could lead elsewhere or keep one waiting.
func readOwn(path string, most int64) (string, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !before.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(before, now) {
		return "", fmt.Errorf("%s was replaced meanwhile", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is larger than %d KiB", path, most>>10)
	}
	return string(b), err
}

// repo is a repository of git's, as one of its worktrees knows it.
type repo struct {
	top    string // the worktree that was asked
	main   string // the first worktree
	common string // the repository's own directory, which each worktree refers to by its path
	admin  string // what the repository keeps of this worktree
}

// repoOf finds the repository that a directory belongs to. An agent that worked there may have led it to another one, for
// the next agent to get that: a repository that doesn't know the directory is refused.
func repoOf(dir string) (repo, error) {
	top := dir
	for {
		st, err := os.Lstat(filepath.Join(top, ".git"))
		switch {
		case err == nil && st.IsDir():
			return mainOf(top)
		case err == nil && st.Mode().IsRegular():
			return linkedOf(top)
		case err == nil:
			return repo{}, unknown(top, errors.New("its .git is neither a directory nor a file"))
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(top) == top:
			return repo{}, fault.New(fault.Failure, "start it in a repository of git's, or leave --worktree out", "%s is in no repository of git's", dir)
		}
		top = filepath.Dir(top)
	}
}

func unknown(top string, err error) error {
	return fault.New(fault.Failure, "see git -C "+quote(top)+" worktree list", "%s is no worktree of a repository that knows it: %w", top, err)
}

// mainOf is a repository whose first worktree is at top.
func mainOf(top string) (repo, error) {
	common := filepath.Join(top, ".git")
	if _, err := readOwn(filepath.Join(common, "HEAD"), maxRef); err != nil {
		return repo{}, unknown(top, err)
	}
	if _, err := os.Lstat(filepath.Join(common, "commondir")); !errors.Is(err, fs.ErrNotExist) {
		return repo{}, unknown(top, errors.New("its .git leads to another one"))
	}
	return repo{top: top, main: top, common: common, admin: common}.shown()
}

// linkedOf is the repository of a further worktree. Each of the two names the other by its path.
func linkedOf(top string) (repo, error) {
	own := filepath.Join(top, ".git")
	admin, err := pathIn(own, "gitdir: ")
	if err != nil {
		return repo{}, unknown(top, err)
	}
	trees := filepath.Dir(admin)
	common := filepath.Dir(trees)
	r := repo{top: top, main: common, common: common, admin: admin}
	if filepath.Base(common) == ".git" {
		r.main = filepath.Dir(common)
	}
	if filepath.Base(trees) != "worktrees" {
		return repo{}, unknown(top, fmt.Errorf("it belongs to %s", admin))
	}
	if real, err := filepath.EvalSymlinks(admin); err != nil || real != admin {
		return repo{}, unknown(top, fmt.Errorf("%s is not there, or leads elsewhere", admin))
	}
	if back, err := pathIn(filepath.Join(admin, "gitdir"), ""); err != nil || back != own {
		return repo{}, unknown(top, fmt.Errorf("%s does not know it", common))
	}
	return r.shown()
}

// pathIn is the path that a file of git's has, which may be relative to the file's directory.
func pathIn(file, prefix string) (string, error) {
	text, err := readOwn(file, maxRef)
	if err != nil {
		return "", err
	}
	path, ok := strings.CutPrefix(strings.TrimRight(text, "\r\n"), prefix)
	if !ok || path == "" {
		return "", fmt.Errorf("%s has no path", file)
	}
	path = filepath.FromSlash(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	return filepath.Clean(path), nil
}

func (r repo) shown() (repo, error) {
	for _, path := range []string{r.top, r.common} {
		if err := shown(path); err != nil {
			return repo{}, err
		}
	}
	return r, nil
}

// worktree is where that of a name is, or will be, beside the repository. In one that is empty nothing was ever checked
// out. What stands there and is none of the repository's is not taken for one.
func (r repo) worktree(name string) (dir string, missing, empty bool, err error) {
	dir = r.main + "-" + name
	st, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, true, true, nil
	}
	if err == nil && st.IsDir() {
		if there, err := os.ReadDir(dir); err == nil && len(there) == 0 { // a start that did not get any further
			return dir, false, true, nil
		}
		// An agent that worked in the repository may have written any directory into its list.
		if there, err := repoOf(dir); err == nil && there.top == dir && there.common == r.common {
			_, err = os.Lstat(filepath.Join(there.admin, "index"))
			return dir, false, errors.Is(err, fs.ErrNotExist), nil
		}
	}
	return "", false, false, fault.New(fault.Failure, "give the worktree another name", "%s is there already, and is no worktree of %s", dir, r.main)
}

// fill makes a worktree, unless it was made, and checks its files out. A filter of git-lfs' is not there to run, and its
// files stay what they are. Whose the repository is, is no matter where there is nothing but it.
const fill = `export HOME=/tmp; git() { command git -c safe.directory='*' -c filter.lfs.required=false ` +
	`-c filter.lfs.smudge= -c filter.lfs.process= "$@"; }; if [ -e "$2/.git" ]; then :; ` +
	`elif git --git-dir="$1" rev-parse -q --verify "refs/heads/$3" >/dev/null; then ` +
	`git --git-dir="$1" worktree add --no-checkout "$2" "$3"; else ` +
	`git --git-dir="$1" worktree add --no-checkout -b "$3" "$2"; fi && cd "$2" && git reset --quiet --hard`

// mounts are the worktree as the workspace, and both at their own paths: git finds the one by the path in the other,
// either way.
func (r repo) mounts(dir string) ([]string, error) {
	if !filepath.IsAbs(r.common) || strings.HasPrefix(r.common+"/", workspace+"/") || strings.Contains(r.common, `\`) {
		return nil, fault.New(fault.Usage, "start it in a directory elsewhere", "a worktree of %s can't be mounted at its own path", r.common)
	}
	return slices.Concat(mount(dir, workspace, false), mount(dir, dir, false), mount(r.common, r.common, false)), nil
}
