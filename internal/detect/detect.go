// Package detect prints entries of an allowlist out of package managers' own
// configuration: where this image fetches its packages from.
package detect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/container"
)

// detectors say where each package manager of this image fetches from. They ask nothing of the network, and know no
// host but by the image's own configuration, so a corporate mirror is followed.
//
// apt is asked, since nobody but root configures it. The files of npm, pip and go are read here: the agent can write
// what these would read. npm may be corepack's, which runs what package.json names, and pip runs what is in a home or a
// virtual environment. npm also keeps to itself a registry with a password in its URL.
func detectors() map[string]func(*image) ([]origin, error) {
	return map[string]func(*image) ([]origin, error){
		"npm": detectNpm, "go": detectGo, "apt": detectApt, "pip": detectPip, "cargo": detectCargo,
		// On the port of SSH no name inside a connection could be checked.
		"github-meta": func(*image) ([]origin, error) {
			return []origin{{kind: preset, url: "@github-meta", what: "git over SSH", from: "the addresses of this release"}}, nil
		},
	}
}

// Managers are those that are Known, as help has them.
const Managers = "npm|go|apt|pip|cargo|github-meta"

// Known says whether there is something to detect of a package manager.
func Known(manager string) bool { return detectors()[manager] != nil }

// Entries returns the lines of an allowlist for a package manager that is Known, as it is configured in this image for
// who works in dir with these variables. Private marks them as servers that have private addresses.
func Entries(ctx context.Context, env map[string]string, dir, manager string, private bool) (string, error) {
	return newImage(ctx, env, dir).entries(manager, private)
}

func (im *image) entries(manager string, private bool) (string, error) {
	origins, err := detectors()[manager](im)
	if err != nil {
		return "", err
	}
	for _, name := range container.ProxyVariables(im.env) {
		origins = append(origins, origin{kind: proxy, url: im.env[name], what: "proxy", from: "variable " + name})
	}
	return lines(manager, origins, private)
}

// image is what detect reads of the image that it runs in.
type image struct {
	files fs.FS // from /
	env   map[string]string
	dir   string // working directory
	home  string // "" if there is none
	// tool runs a program by its absolute path, with a fixed environment, and returns its standard output.
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

// ask runs the first of programs that is there, to learn what; ok is false if none is.
func (im *image) ask(what string, programs []string, args ...string) (out string, ok bool, err error) {
	program, ok := im.find(programs...)
	if !ok {
		return "", false, nil
	}
	if out, err = im.tool(program, args...); err != nil {
		err = fmt.Errorf("ask %s: %w", what, err)
	}
	return out, true, err
}

// maxDetectFile is the size of a configuration file that is still read, in bytes.
const maxDetectFile = 1 << 20

// read returns a file's content; a file that is missing is not an error.
func (im *image) read(name string) (data string, ok bool, err error) {
	f, err := im.files.Open(strings.TrimPrefix(path.Clean("/"+name), "/"))
	if name == "" || errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDetectFile+1))
	if err == nil && len(b) > maxDetectFile {
		err = fmt.Errorf("%s is larger than %d KiB", name, maxDetectFile>>10)
	}
	return string(b), true, err
}

func (im *image) find(names ...string) (string, bool) {
	for _, name := range names {
		if st, err := fs.Stat(im.files, strings.TrimPrefix(path.Clean(name), "/")); err == nil && !st.IsDir() {
			return name, true
		}
	}
	return "", false
}

func (im *image) upwards() []string {
	dirs := []string{path.Clean("/" + im.dir)}
	for d := dirs[0]; d != "/"; dirs = append(dirs, d) {
		d = path.Dir(d)
	}
	return dirs
}

// below is a path below dir, or "" where there is no dir.
func below(dir, name string) string {
	if dir == "" {
		return ""
	}
	return path.Join("/", dir, name)
}

// userConfig is a path below the user's directory of configuration.
func (im *image) userConfig(name string) string {
	return below(cmp.Or(im.env["XDG_CONFIG_HOME"], below(im.home, ".config")), name)
}

type setting struct{ value, from string }

// config is what was found of a tool's settings.
type config map[string]setting

// merge adds what a later place has; what was found before counts.
func (c config) merge(later config) {
	for key, s := range later {
		if _, ok := c[key]; !ok && s.value != "" {
			c[key] = s
		}
	}
}

// readInto merges files of KEY = VALUE into c. The first of the files counts, and in it the last line. A key that
// stands below [SECTION] is SECTION.KEY. With python, the format is that of Python's configparser.
func (im *image) readInto(c config, python bool, files ...string) error {
	for _, file := range files {
		data, _, err := im.read(file)
		if err != nil {
			return err
		}
		found, section, key := config{}, "", ""
		for i, line := range strings.Split(strings.TrimPrefix(data, "\ufeff"), "\n") {
			from := fmt.Sprintf("%s:%d", file, i+1)
			text := strings.TrimSpace(line)
			at := strings.IndexByte(text, '=')
			if python {
				at = strings.IndexAny(text, "=:")
			}
			switch {
			case text == "" || text[0] == '#' || text[0] == ';':
			case python && (line[0] == ' ' || line[0] == '\t'): // the value goes on
				if key == "" {
					return fmt.Errorf("%s: a line continues nothing", from)
				}
				found[key] = setting{strings.TrimSpace(found[key].value + " " + text), found[key].from}
			case text[0] == '[' && strings.Contains(text, "]"):
				section, key = text[1:strings.IndexByte(text, ']')]+".", ""
			case at >= 0 && (section != "" || !python):
				name := strings.Trim(strings.TrimSpace(text[:at]), `"'`)
				if python {
					name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
				}
				key = section + name
				found[key] = setting{strings.TrimSpace(text[at+1:]), from}
			case python:
				return fmt.Errorf("%s: neither a section nor a setting of one", from)
			}
		}
		c.merge(found)
	}
	return nil
}
