package launch

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

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
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	below, err := filepath.Rel(dir, home)
	return err == nil && filepath.IsLocal(below)
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

// identity is what git writes into commits, by the settings of who works in dir. What git does not say is left out.
func identity(ctx context.Context, dir string) (variables []string) {
	for _, v := range []struct{ key, suffix string }{{"user.name", "NAME"}, {"user.email", "EMAIL"}} {
		value, err := git(ctx, dir, "config", "--get", v.key)
		if err != nil || value == "" || text.Clean(value) != value {
			continue
		}
		variables = append(variables, "GIT_AUTHOR_"+v.suffix+"="+value, "GIT_COMMITTER_"+v.suffix+"="+value)
	}
	return variables
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
