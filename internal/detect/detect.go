// Package detect prints entries of an allowlist out of package managers' own
// configuration: where this image fetches its packages from.
package detect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/policy"
)

// detectors say where each package manager of this image fetches from. They ask
// nothing of the network, and know no host but by the image's own configuration,
// so a corporate mirror is followed. GitHub's addresses are a preset.
//
// apt is asked, since nobody but root configures it. The files of npm, pip and go are
// read here, since these three would have to be asked where the agent can write what
// they read: npm may be corepack's, which runs what package.json names, and pip runs
// what is in a home or a virtual environment. npm also keeps to itself a registry with
// a password in its URL, and all three take half a second and have to be there.
func detectors() map[string]func(*image) ([]origin, error) {
	return map[string]func(*image) ([]origin, error){
		"npm": detectNpm, "go": detectGo, "apt": detectApt, "pip": detectPip, "cargo": detectCargo,
		"github-meta": detectGitHubMeta,
	}
}

// Known says whether there is something to detect of a package manager.
func Known(manager string) bool { return detectors()[manager] != nil }

// Entries returns the lines of an allowlist for a package manager that is Known, as it
// is configured in this image for who works in dir with these variables. Private marks
// them as servers that have private addresses.
func Entries(ctx context.Context, env map[string]string, dir, manager string, private bool) (string, error) {
	return newImage(ctx, env, dir).entries(manager, private)
}

func (im *image) entries(manager string, private bool) (string, error) {
	origins, err := detectors()[manager](im)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := writeOrigins(&out, manager, append(origins, proxies(im.env)...), private); err != nil {
		return "", err
	}
	return out.String(), nil
}

// image is what detect reads of the image that it runs in.
type image struct {
	files fs.FS // from /
	env   map[string]string
	dir   string // working directory
	home  string // "" if there is none
	// tool runs a program by its absolute path, with a fixed environment, and
	// returns its standard output.
	tool func(path string, args ...string) (string, error)
}

func newImage(ctx context.Context, env map[string]string, dir string) *image {
	im := &image{files: os.DirFS("/"), env: env, dir: dir}
	im.home = im.env["HOME"]
	im.tool = func(path string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=" + im.home}
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", path, args[0], err)
		}
		return string(out), nil
	}
	return im
}

// maxDetectFile is the size of a configuration file that is still read, in bytes.
const maxDetectFile = 1 << 20

// read returns a file's content; a file that is missing is not an error.
func (im *image) read(name string) (data string, ok bool, err error) {
	f, err := im.files.Open(strings.TrimPrefix(path.Clean(name), "/"))
	switch {
	case isNotExist(err):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDetectFile+1))
	switch {
	case err != nil:
		return "", false, err
	case len(b) > maxDetectFile:
		return "", false, fmt.Errorf("%s is larger than %d KiB", name, maxDetectFile>>10)
	}
	return string(b), true, nil
}

// find returns the first of names that is there.
func (im *image) find(names ...string) (string, bool) {
	for _, name := range names {
		if st, err := fs.Stat(im.files, strings.TrimPrefix(path.Clean(name), "/")); err == nil && !st.IsDir() {
			return name, true
		}
	}
	return "", false
}

// upwards is the working directory and all above it.
func (im *image) upwards() []string {
	dirs := []string{path.Clean("/" + im.dir)}
	for d := dirs[0]; d != "/"; {
		d = path.Dir(d)
		dirs = append(dirs, d)
	}
	return dirs
}

// badEntry finds the first line of entries that no policy would take.
func badEntry(text string) (line int, err error) {
	_, err = policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "detected", Data: []byte(text)}}}, allowlist.Files)
	var list policy.ErrorList
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &list) && len(list) > 0 && list[0].Source.Line > 0:
		return list[0].Source.Line, errors.New(list[0].Message)
	}
	return 1, err
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
