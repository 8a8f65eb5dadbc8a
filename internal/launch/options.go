package launch

import (
	"errors"
	"flag"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/route"
)

// Options are what a person wants of a start.
type Options struct {
	Agent    string   // claude, codex, …: the label of an image
	Dir      string   // of the host, to work in; "": the working directory
	Command  []string // in place of the image's; none: the image's
	Image    string   // "": the one that has the agent's label
	Worktree string   // "": Dir itself
	Detach   bool     // start in the background, with a session
	Plain    bool     // standard input is no terminal

	Allow         []string // entries of a policy
	Inbound       []string // ports that are published on the host's loopback
	ModelFromHost string   // port of the host's
	Secrets       []string // ROUTE=FILE
	Authority     string   // file of certificates, in PEM
	Env           []string // NAME=VALUE
}

// Flags adds those of a start.
func (o *Options) Flags(fs *flag.FlagSet) {
	fs.StringVar(&o.Image, "image", "", "start this `IMAGE`, in place of the one that is labelled as the agent's")
	fs.StringVar(&o.Worktree, "worktree", "", "work in a git worktree `NAME` of DIR, beside it, on a branch of that name")
	fs.BoolVar(&o.Detach, "detach", false, "start it in the background; --attach goes there")
	list(fs, &o.Allow, "allow", "also allow this `ENTRY`, as in a policy file; may be given several times", checkEntry)
	list(fs, &o.Inbound, "inbound", "let this `PORT` in, and publish it on the host's localhost; may be given several times", checkPort)
	fs.Func("model-from-host", "the model is served on this `PORT` of the host's", func(s string) error {
		o.ModelFromHost = s
		return checkPort(s)
	})
	list(fs, &o.Secrets, "secret", "the key of a route is in a file: `ROUTE=FILE`; may be given several times", checkSecret)
	fs.StringVar(&o.Authority, "ca", "", "also trust the certificate authorities in `FILE`, a company's for one")
	list(fs, &o.Env, "env", "set a variable of the container: `NAME=VALUE`; may be given several times", nil)
}

// list is a flag that may be given several times.
func list(fs *flag.FlagSet, to *[]string, name, usage string, check func(string) error) {
	fs.Func(name, usage, func(s string) error {
		if check != nil {
			if err := check(s); err != nil {
				return err
			}
		}
		*to = append(*to, s)
		return nil
	})
}

// checkEntry leaves the entry to agent-init inside, to which all of them go in one variable. There a comma begins another
// entry, but for those of methods and paths.
func checkEntry(s string) error {
	if s == "" || strings.Contains(s, ",") && !strings.Contains(s, " /") {
		return errors.New("give a single entry, and --allow again for another")
	}
	return nil
}

func checkPort(s string) error {
	if n, err := strconv.ParseUint(s, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return errors.New("give a port from 1 to 65535")
	}
	return nil
}

var (
	routeName    = lazy.Pattern(`^[a-z0-9][a-z0-9-]*$`)
	variableName = lazy.Pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func checkSecret(s string) error {
	name, file, ok := strings.Cut(s, "=")
	if !ok || file == "" || !routeName().MatchString(name) {
		return errors.New("give a ROUTE=FILE such as anthropic=anthropic.key")
	}
	return nil
}

// checkEnv refuses a key: everybody who may ask the engine sees a container's variables. The error has no value.
func checkEnv(s string) error {
	name, _, ok := strings.Cut(s, "=")
	if !ok || !variableName().MatchString(name) {
		return fault.New(fault.Usage, "give a NAME=VALUE", "--env names no variable")
	}
	for _, r := range route.Names() {
		if b, _ := route.Builtin(r); slices.Contains(variables(r), name) || b.Env[name] == "{token}" {
			return fault.New(fault.Usage, "leave it in your own environment, or use --secret "+r+"=FILE",
				"--env: %s is a key, and the engine shows the variables of a container", name)
		}
	}
	return nil
}

// variables are those that hold the key of a built-in route.
func variables(name string) (names []string) {
	r, _ := route.Builtin(name)
	for _, source := range r.Credential {
		if source.Env != "" {
			names = append(names, source.Env)
		}
	}
	return names
}

// Check refuses what would not arrive as it is written, on a terminal or in the engine, and makes the directory's path whole.
func (o *Options) Check() error {
	if !nameOf().MatchString(o.Agent) {
		return fault.New(fault.Usage, "agent-init launch claude", "%q can't be the name of an agent", o.Agent)
	}
	if o.Worktree != "" && !nameOf().MatchString(o.Worktree) {
		return fault.New(fault.Usage, "use letters, digits, dots and dashes", "%q can't be the name of a worktree", o.Worktree)
	}
	if strings.HasPrefix(o.Image, "-") {
		return fault.New(fault.Usage, "name an image", "%q can't be the name of an image", o.Image)
	}
	for _, v := range o.Env {
		if err := checkEnv(v); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	o.Dir = dir
	for _, s := range slices.Concat([]string{o.Dir, o.Image, o.Authority}, o.Command, o.Allow, o.Env, o.Secrets) {
		if err := shown(s); err != nil {
			return err
		}
	}
	return nil
}

// shown refuses what would not be on a terminal what it is.
func shown(s string) error {
	if text.Clean(s) != s {
		return fault.New(fault.Usage, "write it without", "%q has a character that can't be shown", text.Clean(s))
	}
	return nil
}
