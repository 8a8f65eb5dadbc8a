package launch

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/internal/text"
)

// Host is what a start takes from the machine, and from the person who starts.
type Host struct {
	Env      map[string]string
	UID, GID int    // -1 where files have no such owner
	Zone     string // of time, as in Europe/Berlin; "" if it is not known
	Rootless bool   // the engine is a user's: the container's root is that user
}

// HostOf looks at this machine, with the variables of who asks.
func HostOf(ctx context.Context, env map[string]string, e Engine) Host {
	h := Host{Env: env, UID: -1, GID: -1, Zone: zone(env["TZ"])}
	if runtime.GOOS == "linux" { // elsewhere the engine is a virtual machine, and says that files are whose one asks
		h.UID, h.GID = os.Getuid(), os.Getgid()
		h.Rootless = e.rootless(ctx)
	}
	return h
}

// livesIn says whether the home directory of who starts is there or below, with the keys and the logins in it.
func (h Host) livesIn(dir string) bool {
	home := h.Env["HOME"]
	if runtime.GOOS == "windows" {
		home = h.Env["USERPROFILE"]
	}
	return within(home, dir)
}

// rootless asks the engine; what doesn't say so is taken for root's.
func (e Engine) rootless(ctx context.Context) bool {
	question := "{{json .SecurityOptions}}"
	if e.Name == "podman" {
		question = "{{.Host.Security.Rootless}}"
	}
	out, err := e.ask(ctx, "info", "--format", question)
	said := string(out)
	return err == nil && (strings.Contains(said, "rootless") || strings.TrimSpace(said) == "true")
}

// zone is the name of the time zone: the variable's, or that of the machine's files.
func zone(variable string) string {
	if variable != "" {
		return named(variable)
	}
	if to, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if name := zoneOf(to); name != "" {
			return name
		}
	}
	b, _ := os.ReadFile("/etc/timezone")
	return named(strings.TrimSpace(string(b)))
}

// zoneOf is the zone that a file is of: below zoneinfo, or zoneinfo.default on a Mac.
func zoneOf(file string) string {
	_, below, _ := strings.Cut(file, "/zoneinfo")
	_, name, _ := strings.Cut(below, "/")
	return named(name)
}

var zoneName = lazy.Pattern(`^[A-Za-z0-9_+-]{1,20}(/[A-Za-z0-9_+-]{1,20}){0,2}$`)

// named is what is the name of a zone, and nothing else.
func named(zone string) string {
	if !zoneName().MatchString(zone) {
		return ""
	}
	return zone
}

// within says whether a path leads into a directory, or to it.
func within(path, dir string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	below, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(below)
}

// Distrust takes what lies in a directory, or in its repository, out of PATH. An agent that worked there may have put a
// program into it, named as one that is run here: a virtual environment's directory is at the front of many a PATH.
func Distrust(dir string) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	dirs := []string{dir}
	if r, err := repoOf(dir); err == nil {
		dirs = append(dirs, r.top, r.main)
	}
	dirs = slices.DeleteFunc(dirs, Host{Env: map[string]string{"HOME": os.Getenv("HOME"), "USERPROFILE": os.Getenv("USERPROFILE")}}.livesIn) // which no agent gets
	kept := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(entry string) bool {
		return !filepath.IsAbs(entry) || slices.ContainsFunc(dirs, func(dir string) bool { return within(entry, dir) })
	})
	os.Setenv("PATH", strings.Join(kept, string(os.PathListSeparator)))
}

// gitTime is how long git may take to say what a person has set. That may be on a network.
const gitTime = 10 * time.Second

// setting is what the person's own settings of git say. It asks away from all repositories: an agent may have written
// what theirs say.
func setting(ctx context.Context, dir string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"config"}, args...)...)
	cmd.Dir = filepath.VolumeName(dir) + string(filepath.Separator)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_COMMON_DIR=") || strings.HasPrefix(v, "GIT_WORK_TREE=")
	})
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(out), "\r\n")
}

// identity is what git writes into commits, by the settings of who works in dir. What git does not say is left out, and
// what the repository says itself: git finds that in the container.
func identity(ctx context.Context, dir string, env map[string]string) (variables []string) {
	own := ""
	r, err := repoOf(dir)
	if err == nil {
		own, _ = readOwn(filepath.Join(r.common, "config"), maxAuthority) // what can't be read says nothing
	}
	files := conditional(setting(ctx, dir, "--type=path", "--get-regexp", `^includeif\..*\.path$`), r.admin, env["HOME"])
	for _, v := range []struct {
		key, suffix string
		own         func() *regexp.Regexp
	}{{"name", "NAME", ownName}, {"email", "EMAIL", ownEmail}} {
		if v.own().MatchString(own) {
			continue
		}
		value := setting(ctx, dir, "--get", "user."+v.key)
		for _, file := range files {
			value = cmp.Or(setting(ctx, dir, "--file", file, "--includes", "--get", "user."+v.key), value)
		}
		if value == "" || text.Clean(value) != value {
			continue
		}
		variables = append(variables, "GIT_AUTHOR_"+v.suffix+"="+value, "GIT_COMMITTER_"+v.suffix+"="+value)
	}
	return variables
}

// A repository's own settings of who works there.
var (
	ownName  = lazy.Pattern(`(?i)\[user\][^\[]*\bname\s*=`)
	ownEmail = lazy.Pattern(`(?i)\[user\][^\[]*\bemail\s*=`)
)

// conditional are the files that a person's settings include for the repositories in a directory: includeIf "gitdir:DIR/".
// Conditions of other kinds are not known here.
func conditional(said, admin, home string) (files []string) {
	for line := range strings.Lines(said) {
		condition, file, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ".path ")
		of, ok := strings.CutPrefix(condition, "includeif.gitdir:")
		if below, ok := strings.CutPrefix(of, "~/"); ok {
			of = filepath.ToSlash(home) + "/" + below
		}
		if ok && strings.HasSuffix(of, "/") && strings.HasPrefix(filepath.ToSlash(admin)+"/", of) && filepath.IsAbs(file) {
			files = append(files, file)
		}
	}
	return files
}

// terminalOf are the variables of the terminal that programs in the image know.
func terminalOf(env func(string) string) (variables []string) {
	if term := env("TERM"); slices.Contains([]string{"xterm", "xterm-256color", "screen-256color", "tmux-256color", "linux"}, term) {
		variables = append(variables, "TERM="+term)
	}
	if colour := env("COLORTERM"); colour == "truecolor" || colour == "24bit" {
		variables = append(variables, "COLORTERM="+colour)
	}
	if env("NO_COLOR") != "" {
		variables = append(variables, "NO_COLOR=1")
	}
	return variables
}
