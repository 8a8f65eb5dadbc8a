package launch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
)

// Print writes the commands of the plan, for a person to read or to copy: these are what Run runs. There is no comment
// among them, since an interactive zsh would take its words for a command.
func (p Plan) Print(w io.Writer) error {
	var out strings.Builder
	for _, s := range p.steps {
		for _, words := range s.commands() {
			out.WriteString(s.fed() + shell(words) + " &&\n")
		}
	}
	out.WriteString(shell(p.last.words) + "\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// commands are the step as a shell has it.
func (s step) commands() [][]string {
	if s.dir == "" {
		return [][]string{s.words}
	}
	all := [][]string{{"mkdir", s.dir}}
	if s.owner != "" {
		all = append(all, []string{"chown", s.owner, s.dir})
	}
	return all
}

// fed is the part of a pipe before the step, as a shell has it.
func (s step) fed() string {
	var parts []string
	for _, in := range s.reads {
		if in.key == nil {
			parts = append(parts, shell([]string{"cat", in.file}))
			continue
		}
		value := `"$` + in.key.variable + `"`
		if in.key.file != "" { // whose line may end as on Windows
			value = "\"$(\n" + shell([]string{"cat", in.key.file}) + " |\ntr -d '\\r'\n)\""
		}
		parts = append(parts, shell([]string{"printf", in.key.route + ` %s\n`})+" "+value)
	}
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return parts[0] + " |\n"
	}
	return "{\n" + strings.Join(parts, "\n") + "\n} |\n"
}

// Run runs the commands, and becomes the last of them: it returns only if there is an error, or on a system on which no
// program can become another.
func (p Plan) Run(ctx context.Context) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	return become(p.command(ctx, p.last))
}

// Start runs the commands for a caller that goes on, with Options.Detach. The container is there when it returns, and
// may not be confined yet.
func (p Plan) Start(ctx context.Context) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	_, err := p.asked.ask(ctx, p.last.words[1:]...)
	return err
}

func (p Plan) prepare(ctx context.Context) error {
	for _, s := range p.steps {
		if s.dir != "" {
			if err := s.makeDir(); err != nil {
				return fault.New(fault.Failure, "see that you may write there", "%w", err)
			}
			continue
		}
		if err := p.unmoved(); err != nil {
			return err
		}
		in, err := p.input(s)
		if err != nil {
			return err
		}
		var complaint bytes.Buffer
		cmd := p.command(ctx, s)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), io.Discard, &complaint
		if err := cmd.Run(); err != nil {
			return fault.New(fault.Failure, "see what --print shows", "%w", &refusal{engine: s.words[0], verb: s.words[1], said: complaint.String(), err: err})
		}
	}
	return p.unmoved()
}

// makeDir makes the step's directory, and never takes one that is there.
func (s step) makeDir() error {
	if err := os.Mkdir(s.dir, 0o755); err != nil || s.owner == "" {
		return err
	}
	var uid, gid int
	if _, err := fmt.Sscanf(s.owner, "%d:%d", &uid, &gid); err != nil {
		return err
	}
	return os.Lchown(s.dir, uid, gid)
}

// unmoved looks again at what is about to be mounted. An agent that runs may write in a directory above it, and put a
// symbolic link to another in its place.
func (p Plan) unmoved() error {
	for _, dir := range p.real {
		if there, err := filepath.EvalSymlinks(dir); err != nil || there != dir {
			return fault.New(fault.Failure, "name a path without one", "%s is, or has become, a symbolic link", dir)
		}
	}
	return nil
}

// command is a step as a process. An engine is run from where it was found.
func (p Plan) command(ctx context.Context, s step) *exec.Cmd {
	program := s.words[0]
	if program == p.asked.Name {
		program = p.asked.Path
	}
	cmd := exec.CommandContext(ctx, program, s.words[1:]...)
	cmd.Args[0] = s.words[0]
	return cmd
}

// input is what a step reads. A key is read here, and is in no other place of this process.
func (p Plan) input(s step) ([]byte, error) {
	var all bytes.Buffer
	for _, in := range s.reads {
		if in.key == nil {
			b, err := checkAuthority(in.file)
			if err != nil {
				return nil, err
			}
			all.Write(b)
			continue
		}
		key, err := in.key.value(p.host.Env)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&all, "%s %s\n", in.key.route, key)
	}
	return all.Bytes(), nil
}
