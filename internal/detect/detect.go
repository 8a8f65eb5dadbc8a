// Package detect prints entries of an allowlist out of package managers' own
// configuration: where this image fetches its packages from.
package detect

import (
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
)

// detectors say where each package manager of this image fetches from. They ask
// nothing of the network, and know no host but by the image's own configuration,
// so a corporate mirror is followed. GitHub's addresses are a preset.
//
// apt is asked, since nobody but root configures it. The files of npm, pip and go are
// read here: the agent can write what these would read. npm may be corepack's, which
// runs what package.json names, and pip runs what is in a home or a virtual environment.
// npm also keeps to itself a registry with a password in its URL.
func detectors() map[string]func(*image) ([]origin, error) {
	return map[string]func(*image) ([]origin, error){
		"npm": detectNpm, "go": detectGo, "apt": detectApt, "pip": detectPip, "cargo": detectCargo,
		// The built-in preset of the addresses of git, on the port of SSH, where no name
		// inside a connection could be checked. GitHub itself is not asked.
		"github-meta": func(*image) ([]origin, error) {
			return []origin{{url: "@github-meta", what: "git over SSH", from: "the addresses of this release"}}, nil
		},
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
	return lines(manager, append(origins, proxies(im.env)...), private)
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
	im := &image{files: os.DirFS("/"), env: env, dir: dir, home: env["HOME"]}
	im.tool = func(path string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Dir = "/"
		// Go would start the toolchain that a file in the home names.
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=" + im.home, "GOENV=off", "GOTOOLCHAIN=local"}
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
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
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

// setting is a value with the place that it was found in.
type setting struct{ value, from string }

// config is what was found of a tool's settings.
type config map[string]setting

// merge adds what a later place has; what was found before counts.
func (c config) merge(later config) {
	for key, s := range later {
		if _, ok := c[key]; !ok {
			c[key] = s
		}
	}
}

// readInto merges a file of settings into c. Parse is called with each line that is
// neither empty nor a comment, and adds what it says to what was found in the file.
func (im *image) readInto(c config, file string, parse func(found config, from, line string) error) error {
	data, _, err := im.read(file)
	if err != nil {
		return err
	}
	found := config{}
	for i, line := range strings.Split(strings.TrimPrefix(data, "\ufeff"), "\n") {
		if text := strings.TrimSpace(line); text == "" || text[0] == '#' || text[0] == ';' {
			continue
		}
		from := fmt.Sprintf("%s:%d", file, i+1)
		if err := parse(found, from, line); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	c.merge(found)
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
