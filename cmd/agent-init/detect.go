package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	web "net/http"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

// detectors say where each package manager of this image fetches from. They ask
// nothing of the network, and know no host but by the image's own configuration,
// so a corporate mirror is followed. GitHub's addresses are the exception.
func detectors() map[string]func(*image) ([]origin, error) {
	return map[string]func(*image) ([]origin, error){
		"npm": detectNpm, "go": detectGo, "apt": detectApt, "pip": detectPip, "cargo": detectCargo,
		"github-meta": detectGitHubMeta,
	}
}

func detectCommand() command {
	return command{
		name: "detect", synopsis: "[--private] npm|go|apt|pip|cargo|github-meta…",
		summary: "print allowlist entries from this image's own package-manager configuration",
		example: "RUN agent-init detect npm >> /etc/agent-init/allowlist.d/npm.txt\n\n" +
			"Read, in the order that the package manager itself reads them:\n" +
			"  npm    npm_config_*, .npmrc of the project, the user and the prefix, then npm's own default\n" +
			"  go     GOPROXY, GOSUMDB, GONOPROXY and GOPRIVATE as \"go env\" has them, or the environment, GOENV and go.env\n" +
			"  apt    sources.list, sources.list.d/*.list and *.sources, lists of mirrors, proxies of apt.conf\n" +
			"  pip    PIP_*, pip.conf of the environment, the user and the system\n" +
			"  cargo  .cargo/config.toml from here upwards, and that of CARGO_HOME\n" +
			"What can't be understood is an error, and then nothing is printed. A proxy is printed as a comment: an\n" +
			"entry for it would open whatever the proxy lets through. A server may name further hosts for the packages\n" +
			"themselves; the audit log shows them when they are refused.\n" +
			"github-meta is no package manager: it fetches the addresses of git at GitHub, for SSH, from\n" +
			"api.github.com/meta, or takes the built-in copy, the preset @github-meta, if there is no answer.",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("private", false, "mark the entries private: the servers have private addresses")
		},
		run: func(ctx context.Context, e environment, flags *flag.FlagSet, args []string) error {
			dir, err := os.Getwd()
			if err != nil {
				return faultf(exitFailure, "run it in a directory that exists", "find the working directory: %w", err)
			}
			return runDetect(e, newImage(ctx, e.env, dir), isSet(flags, "private"), args)
		},
	}
}

func runDetect(e environment, im *image, private bool, args []string) error {
	const remedy = "agent-init detect npm|go|apt|pip|cargo|github-meta"
	if len(args) == 0 {
		return faultf(exitUsage, remedy, "detect: say which package manager")
	}
	var out bytes.Buffer
	for _, arg := range args {
		detect, ok := detectors()[arg]
		if !ok {
			return faultf(exitUsage, remedy, "detect: unknown package manager %q", arg)
		}
		origins, err := detect(im)
		if err == nil {
			err = writeOrigins(&out, arg, append(origins, proxies(im.env)...), private)
		}
		if err != nil {
			return faultf(exitPolicy, "correct the configuration, or write the entries by hand", "detect %s: %w", arg, err)
		}
	}
	_, err := e.stdout.Write(out.Bytes())
	return err
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
	// fetch gets a document of the internet; without an answer, it is errUnreachable.
	fetch func(url string) ([]byte, error)
}

func newImage(ctx context.Context, env []string, dir string) *image {
	im := &image{files: os.DirFS("/"), env: environMap(env), dir: dir}
	im.home = im.env["HOME"]
	im.fetch = fetcher(ctx, &web.Client{})
	im.tool = func(path string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=" + im.home}
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
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
	_, err = policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "detected", Data: []byte(text)}}}, presets())
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
