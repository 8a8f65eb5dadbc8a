// Package cli has what a person types on the host: "agent-init launch", and "agent-init -C NAME COMMAND".
package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/launch"
	"github.com/agent-init/agent-init/internal/text"
)

// Streams are those of the process.
type Streams struct {
	In       *os.File
	Out, Err io.Writer
}

// terminal says whether a person types and sees.
func (s Streams) terminal() bool {
	out, ok := s.Out.(*os.File)
	return ok && text.IsTerminal(s.In) && text.IsTerminal(out)
}

// Launch is one command line of "launch".
type Launch struct {
	launch.Options
	JSON   bool
	Engine string
	List   bool
	Attach bool
	Stop   bool
	Print  bool
	UI     bool

	flags *flag.FlagSet
}

// Words of the help.
const (
	Synopsis = "[flags] AGENT [DIR] [-- CMD ARG…]"
	Summary  = "start an agent in a container, confined to its allowlist (on the host)"
	Example  = "agent-init launch claude ~/project"
)

// Flags adds all flags.
func (l *Launch) Flags(fs *flag.FlagSet) {
	l.flags = fs
	engine(fs, &l.Engine)
	fs.BoolVar(&l.List, "list", false, "list the containers of agents")
	fs.BoolVar(&l.Attach, "attach", false, "attach to the session of a container that runs: launch --attach NAME")
	fs.BoolVar(&l.Stop, "stop", false, "end a container: launch --stop NAME")
	fs.BoolVar(&l.Print, "print", false, "print the commands in place of running them")
	fs.BoolVar(&l.UI, "ui", false, "serve a page for a browser on this machine, to start, attach and answer agents")
	l.Options.Flags(fs)
}

func engine(fs *flag.FlagSet, to *string) {
	fs.StringVar(to, "engine", "", "the container `ENGINE`: "+strings.Join(launch.Engines(), ", ")+"; without, the first of them that answers")
}

// Run does what the flags and the arguments say. What followed "--" is the command.
func (l *Launch) Run(ctx context.Context, s Streams, env map[string]string, args, command []string) error {
	if err := l.check(args, command); err != nil {
		return err
	}
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	starts := !l.List && !l.Attach && !l.Stop && !l.UI
	if starts {
		l.Agent, l.Command = word, command
		if len(args) > 1 {
			l.Dir = args[1]
		}
		if err := l.Check(); err != nil {
			return err
		}
	}
	launch.Distrust(".")
	if starts {
		launch.Distrust(l.Dir)
	}
	e, err := launch.Find(ctx, l.Engine)
	if err != nil {
		return err
	}
	switch {
	case starts:
		return l.start(ctx, s, e, env)
	case l.List:
		return l.list(ctx, s, e)
	case l.UI:
		return l.page(ctx, s, e, env)
	case l.Attach:
		c, err := e.Named(ctx, word)
		if err != nil {
			return err
		}
		return e.Become(ctx, s.terminal(), c.Name, "attach")
	}
	return stop(ctx, s, e, word)
}

// check refuses words that would have no effect.
func (l *Launch) check(args, command []string) error {
	asked := 0
	for _, b := range []bool{l.List, l.Attach, l.Stop, l.UI} {
		if b {
			asked++
		}
	}
	most := 2
	switch {
	case asked > 1:
		return fault.New(fault.Usage, "leave out one of the two", "--list, --attach, --stop and --ui contradict each other")
	case l.List, l.UI:
		most = 0
	case asked == 1:
		most = 1
	case len(args) == 0:
		return fault.New(fault.Usage, "agent-init launch claude; agent-init launch --list shows what runs", "launch: say which agent")
	}
	if len(args) > most {
		return fault.New(fault.Usage, "put a command behind --", "launch: %q is one argument too many", args[most])
	}
	if asked > 0 && (len(command) > 0 || l.optioned()) {
		return fault.New(fault.Usage, "leave them out", "--list, --attach, --stop and --ui take no options of a start")
	}
	return nil
}

// optioned says whether a flag was given that only a start reads, but for those that are named.
func (l *Launch) optioned(but ...string) bool {
	some := false
	l.flags.Visit(func(f *flag.Flag) {
		some = some || !slices.Contains(append(but, "engine", "list", "attach", "stop", "ui", "json"), f.Name)
	})
	return some
}

func (l *Launch) start(ctx context.Context, s Streams, e launch.Engine, env map[string]string) error {
	l.Plain = !l.Print && !s.terminal()
	p, err := e.Plan(ctx, l.Options, launch.HostOf(ctx, env, e))
	if err != nil {
		return err
	}
	if l.Print {
		return p.Print(s.Out)
	}
	there, err := e.Occupant(ctx, p)
	if err != nil {
		return err
	}
	switch {
	case there == nil:
	case !there.Running:
		return fault.New(fault.Failure, e.Name+" rm "+p.Name, "the container %s is there, and has ended", p.Name)
	case l.optioned("worktree") || len(l.Command) > 0 || l.Plain:
		return fault.New(fault.Failure, "agent-init launch --attach "+p.Name+", or --worktree NAME to start another beside it",
			"%s runs here already", p.Name)
	default: // who left comes back by the same words
		return e.Become(ctx, true, p.Name, "attach")
	}
	notes := text.Folded(s.Err, "  ")
	for _, note := range p.Notes {
		fmt.Fprintf(notes, "agent-init: %s\n", note)
	}
	if l.Detach {
		return background(ctx, s, e, p)
	}
	return p.Run(ctx)
}

// background starts the container, and returns when it is confined. What it says at its end is gone with it.
func background(ctx context.Context, s Streams, e launch.Engine, p launch.Plan) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	wait, err := e.Exec(ctx, false, p.Name, "wait")
	if err != nil {
		return err
	}
	wait.Stderr = s.Err
	if wait.Run() != nil {
		return fault.New(fault.Failure, "start it without --detach, which shows why", "%s did not come up", p.Name)
	}
	_, err = fmt.Fprintf(s.Out, "%s is started: agent-init launch --attach %s\n", p.Name, p.Name)
	return err
}

func stop(ctx context.Context, s Streams, e launch.Engine, word string) error {
	if word == "" {
		return fault.New(fault.Usage, "agent-init launch --list", "--stop: say which container")
	}
	c, err := e.Named(ctx, word)
	if err != nil {
		return err
	}
	if err := e.Stop(ctx, c.Name); err != nil {
		return fault.New(fault.Failure, "see agent-init launch --list", "%w", err)
	}
	_, err = fmt.Fprintf(s.Out, "%s has ended\n", c.Name)
	return err
}

// listed is what --list --json prints.
type listed struct {
	Version    int                `json:"version"`
	Containers []launch.Container `json:"containers"`
}

// list shows what there is, also what has ended.
func (l *Launch) list(ctx context.Context, s Streams, e launch.Engine) error {
	all, err := e.List(ctx)
	if err != nil {
		return err
	}
	if l.JSON {
		return text.JSON(s.Out, listed{1, append([]launch.Container{}, all...)})
	}
	if remedy := e.Silent(); len(all) == 0 && remedy != "" {
		fault.Warn(s.Err, e.Name+" was asked", remedy)
	}
	return show(text.Folded(s.Out, "  "), all)
}

func show(w io.Writer, all []launch.Container) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no containers of agents")
		return err
	}
	t := text.NewTable("NAME", "AGENT", "STATE", "CREATED", "DIRECTORY")
	for _, c := range all {
		t.Row(text.Clean(c.Name), short(text.Clean(c.Agent)), text.Clean(c.Status), text.Ago(c.Created), text.Clean(c.Dir))
	}
	return t.Write(w)
}

// short keeps what an image says of itself from pushing the other columns away.
func short(label string) string {
	const most = 16
	if letters := []rune(label); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return label
}
