// Package launch starts agents in containers, from the host, and runs agent-init's commands inside of them. It asks a
// container engine by its command line, and so needs no daemon of its own and no privilege that the person has not.
package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// Engine is a container engine of this machine.
type Engine struct {
	Name string // docker, podman, nerdctl or finch
	Path string // of its program

	silent error // of one that would have come first, and does not answer
}

// Engines are the names of those that are known, in the order that Find looks for them. They share what is used here of
// docker's command line.
func Engines() []string { return []string{"docker", "podman", "nerdctl", "finch"} }

// patience is how long an engine may take to say what it has. One that is a virtual machine may have to wake up.
const patience = 30 * time.Second

// Find returns the engine of that name; of none, the first that is installed and answers.
func Find(ctx context.Context, name string) (Engine, error) {
	if name != "" && !slices.Contains(Engines(), name) {
		return Engine{}, fault.New(fault.Usage, "use one of: "+strings.Join(Engines(), " "), "the engine %q is not known", name)
	}
	var silent error
	for _, n := range Engines() {
		path, err := exec.LookPath(n)
		if name != "" && n != name || err != nil {
			continue
		}
		e := Engine{Name: n, Path: path}
		if _, err = e.ask(ctx, "ps", "-q"); err == nil {
			e.silent = silent
			return e, nil
		}
		if silent == nil {
			silent = err
		}
	}
	if silent != nil {
		return Engine{}, fault.New(fault.Failure, "start the engine, or see that you may ask it", "%w", silent)
	}
	if name != "" {
		return Engine{}, fault.New(fault.Failure, "install it, or leave --engine out", "%s is not installed", name)
	}
	return Engine{}, fault.New(fault.Failure, "install one of them", "there is no container engine here: none of %s is installed", strings.Join(Engines(), ", "))
}

// Silent says, where this engine has nothing of what is looked for, that another might have it that does not answer.
func (e Engine) Silent() (remedy string) {
	if e.silent == nil {
		return ""
	}
	return fmt.Sprintf("start the other engine, or see that you may ask it (%v)", e.silent)
}

// ask runs the engine's program for what it prints.
func (e Engine) ask(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, e.Path, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.Bytes(), &refusal{engine: e.Name, verb: args[0], said: complaint.String(), err: errors.Join(ctx.Err(), err)}
	}
	return out.Bytes(), nil
}

// inspected is what the engine says of each thing that a question lists by its ID.
func inspected[T any](ctx context.Context, e Engine, kind string, question ...string) (all []T, err error) {
	for range 3 { // one of them may end meanwhile
		var out []byte
		if out, err = e.ask(ctx, question...); err != nil {
			return nil, err
		}
		ids := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
		if len(ids) == 0 {
			return nil, nil
		}
		if out, err = e.ask(ctx, append([]string{kind, "inspect"}, ids...)...); err == nil {
			if err := json.Unmarshal(out, &all); err != nil {
				return nil, fmt.Errorf("%s %s inspect: %w", e.Name, kind, err)
			}
			return all, nil
		}
	}
	return nil, err
}

// refusal is what an engine said when it did not do something.
type refusal struct {
	engine, verb, said string
	err                error
}

func (r *refusal) Unwrap() error { return r.err }

func (r *refusal) Error() string {
	said := strings.TrimSpace(r.said)
	if line := said[strings.LastIndexByte(said, '\n')+1:]; line != "" {
		return r.engine + " " + r.verb + ": " + text.Clean(line)
	}
	return r.engine + " " + r.verb + ": " + text.InOneLine(r.err)
}
