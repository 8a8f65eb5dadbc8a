package launch

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// Named finds a running container by what a person types: its name or how that begins, its ID, the agent if there is one
// container of it, or a directory's path for the one that works there. Of a name that fits several none is taken.
func (e Engine) Named(ctx context.Context, word string) (Container, error) {
	all, err := e.List(ctx)
	if err != nil {
		return Container{}, err
	}
	c, err := pick(all, word)
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.Code == fault.Failure {
		f.Remedy = cmp.Or(e.Silent(), f.Remedy)
	}
	return c, err
}

func pick(all []Container, word string) (Container, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(c Container) bool { return !c.Running })
	dir, _ := filepath.Abs(word)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for _, fits := range []func(Container) bool{
		func(c Container) bool { return c.Name == word },
		func(c Container) bool { return len(word) >= 12 && strings.HasPrefix(c.ID, word) },
		func(c Container) bool { return strings.HasPrefix(c.Name, word) },
		func(c Container) bool { return c.Agent == word },
		func(c Container) bool { return strings.ContainsAny(word, `./\`) && c.Dir == dir },
	} {
		switch found := slices.DeleteFunc(slices.Clone(all), func(c Container) bool { return word == "" || !fits(c) }); {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return Container{}, fault.New(fault.Usage, "name one of them", "%q is said of several containers: %s", word, names(found))
		}
	}
	switch {
	case len(all) == 1 && word == "":
		return all[0], nil
	case len(all) == 0:
		return Container{}, fault.New(fault.Failure, "agent-init launch claude", "no container of an agent runs")
	case word == "":
		return Container{}, fault.New(fault.Usage, "name one of them", "several containers run: %s", names(all))
	}
	return Container{}, fault.New(fault.Failure, "name one of those that run: "+names(all), "there is no container %q with an agent", word)
}

func names(all []Container) string {
	var list []string
	for _, c := range all {
		list = append(list, text.Clean(c.Name))
	}
	return strings.Join(list, ", ")
}

// Become runs a command of agent-init's in a container, in the place of this program.
func (e Engine) Become(ctx context.Context, tty bool, container string, args ...string) error {
	cmd, err := e.Exec(ctx, tty, container, args...)
	if err != nil {
		return fault.New(fault.Usage, "see agent-init launch --list", "%w", err)
	}
	return become(cmd)
}

// Occupant is the container that has the name of a plan's; nil if there is none.
func (e Engine) Occupant(ctx context.Context, p Plan) (*Container, error) {
	all, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(c Container) bool { return c.Name == p.Name }); i >= 0 {
		return &all[i], nil
	}
	return nil, nil
}
