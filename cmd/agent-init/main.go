// Command agent-init is the init process (PID 1) for containers that run AI coding agents. It seals the network,
// answers DNS for the names of an allowlist and for no others, and proves the result from the agent's side. Then it
// drops every privilege that it doesn't need, and supervises the agent.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/broker"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/guard"
	"github.com/agent-init/agent-init/internal/launch/cli"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window/server"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/reaper/early"
)

func main() {
	os.Exit(run(environment{
		args:   os.Args[1:],
		env:    os.Environ(),
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
	}))
}

// environment is everything that a command takes from the process around it.
type environment struct {
	args, env      []string
	stdin          *os.File
	stdout, stderr io.Writer
	json           bool     // --json was given
	rest           []string // what followed "--", of a command that wants to know
}

// command is one verb of the command line. Its flags are set before it runs.
type command struct {
	group            string // of the help; "": for agent-init itself, not for people
	name             string
	synopsis         string // arguments, for the usage line
	json             string // what --json prints, if there is such a flag
	summary, example string
	words            string // the arguments that there are, if they are few
	signals          bool   // it reads early.Signals; the others end on a signal as any program does
	mixed            bool   // flags may follow arguments
	rest             bool   // what follows "--" is for run to tell from the arguments
	least, most      int    // arguments; most -1: any number
	takes            string // how many that are, in words
	flags            func(fs *flag.FlagSet)
	run              func(ctx context.Context, e environment, args []string) error
}

// commands are all that there are, in the order of the help.
func commands() []command {
	return slices.Concat(
		group("Run", runCommand(), execCommand(), upCommand(), sidecarCommand(), gatewayCommand(), waitCommand()),
		group("Look", statusCommand(), topCommand(), explainCommand(), logCommand(), suggestCommand(), reportCommand(), doctorCommand(), selftestCommand(), metricsCommand()),
		group("Decide", allowCommand(), denyCommand(), grantsCommand(), requestCommand(), mcpCommand(), reloadCommand(), phaseCommand()),
		group("Sessions", attachCommand(), sessionsCommand(), newCommand(), historyCommand(), killWindowCommand()),
		group("On the host", launchCommand()),
		group("Set up", checkCommand(), detectCommand(), completionCommand(), versionCommand()),
		[]command{
			partCommand("guard", "the part that reads the network, without a privilege", guard.Run),
			partCommand(stage.BrokerName, "the part that holds keys of APIs, without a privilege", broker.Run),
			partCommand(stage.Name, "drops every privilege and executes a command", func(context.Context) error { return child.Run() }),
			partCommand(stage.SessionsName, "keeps the terminals of a session", server.Run),
			partCommand(stage.ProbeName, "the probes of the self-test", runProbes),
			keeperCommand(), terminalCommand(), parentCommand(), hintCommand(),
		})
}

// group has the commands for what a person is about to do.
func group(title string, list ...command) []command {
	for i := range list {
		list[i].group = title
	}
	return list
}

// partCommand is a process that agent-init starts of itself.
func partCommand(name, summary string, run func(context.Context) error) command {
	return command{
		name: name, summary: summary + " (started by agent-init itself)",
		run: func(ctx context.Context, _ environment, _ []string) error { return run(ctx) },
	}
}

func visible() []command {
	return slices.DeleteFunc(commands(), func(c command) bool { return c.group == "" })
}

func names() (out []string) {
	for _, c := range visible() {
		out = append(out, c.name)
	}
	return out
}

func run(e environment) int {
	if len(e.args) == 0 {
		usage(e.stderr)
		return fault.Usage
	}
	switch e.args[0] {
	case "help", "-h", "--help", "-help":
		if len(e.args) > 1 && e.args[0] == "help" {
			e.args = []string{e.args[1], "--help"}
			break
		}
		return e.report(cli.Show(e.stdout, usage))
	case "--version":
		e.args[0] = "version"
	case "-C":
		early.Release()
		return e.report(cli.Inside(context.Background(), e.streams(), e.args[1:]))
	}
	for _, c := range commands() {
		if c.name == e.args[0] {
			return c.invoke(e)
		}
	}
	return e.report(fault.New(fault.Usage, meant(e.args[0]), "unknown command %q", e.args[0]))
}

// meant is what to do instead of a command that there is not.
func meant(word string) string {
	if name := policy.Nearest(word, names()); name != "" {
		return "did you mean agent-init " + name + "?"
	}
	return "see agent-init --help"
}

// report tells a person what went wrong, and returns the exit code of it.
func (e environment) report(err error) (code int) {
	return fault.Report(text.Folded(e.stderr, "  "), err)
}

// flagSet has all flags of c. Parsing them sets e.json, and what the command reads.
func (c command) flagSet(e *environment) *flag.FlagSet {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if c.flags != nil {
		c.flags(fs)
	}
	if c.json != "" {
		fs.BoolVar(&e.json, "json", false, c.json)
	}
	return fs
}

func (c command) invoke(e environment) int {
	fs := c.flagSet(&e)
	words := e.args[1:]
	if i := slices.Index(words, "--"); c.rest && i >= 0 {
		words, e.rest = words[:i], words[i+1:]
	}
	var args []string
	var err error
	if c.mixed {
		args, err = cli.Parse(fs, words)
	} else {
		err, args = fs.Parse(words), fs.Args()
	}
	switch {
	case err == flag.ErrHelp:
		return e.report(cli.Show(e.stdout, func(w io.Writer) { c.help(w, fs) }))
	case err != nil:
		return e.report(c.misread(fs, err))
	case len(args) < c.least || c.most >= 0 && len(args) > c.most:
		takes, given := cmp.Or(c.takes, "no arguments"), cmp.Or(strings.Trim(fmt.Sprintf("%q", args), "[]"), "none")
		return e.report(fault.New(fault.Usage, c.usage(), "%s takes %s; given: %s", c.name, takes, given))
	}
	if !c.signals {
		early.Release()
	}
	return e.report(c.run(context.Background(), e, args))
}

// misread is an error of the flags, in words for people: package flag knows "-x" and "--x" as the same.
func (c command) misread(fs *flag.FlagSet, err error) error {
	remedy := "see agent-init " + c.name + " --help"
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return fault.New(fault.Usage, remedy, "%s: %w", c.name, err)
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if meant := policy.Nearest(name, known); meant != "" {
		remedy = "did you mean --" + meant + "?"
	}
	return fault.New(fault.Usage, remedy, "%s has no flag --%s", c.name, name)
}

func (c command) usage() string { return strings.TrimSpace("agent-init " + c.name + " " + c.synopsis) }

func (c command) help(w io.Writer, fs *flag.FlagSet) {
	cli.Help(w, fs, c.usage(), c.summary, c.example)
}

func usage(w io.Writer) {
	fmt.Fprintf(w, "agent-init: the init process (PID 1) for containers that run AI coding agents\n\nusage: agent-init COMMAND [flags]\n")
	group := ""
	for _, c := range visible() {
		if c.group != group {
			group = c.group
			fmt.Fprintf(w, "\n%s:\n", group)
		}
		fmt.Fprintln(w, text.Fold(fmt.Sprintf("  %-11s %s", c.name, c.summary), 80, strings.Repeat(" ", 14)))
	}
	fmt.Fprint(w, "\nagent-init COMMAND --help shows the flags and an example.\nOn the host, agent-init -C NAME COMMAND runs it in the container NAME.\n")
}

// show prints what a command has found out: for a program that asked for it as JSON, and
// else for people, who see each line whole on their terminal.
func (e environment) show(v any, hang string, write func(w io.Writer, coloured bool) error) error {
	if e.json {
		return text.JSON(e.stdout, v)
	}
	return write(text.Folded(e.stdout, hang), e.colour())
}

// verdict is how a command ends whose answer is a yes or a no.
func verdict(yes bool, no int) error {
	if yes {
		return nil
	}
	return fault.Status(no)
}

// onTerminal says whether a person looks at the output.
func (e environment) onTerminal() bool {
	f, ok := e.stdout.(*os.File)
	return ok && text.IsTerminal(f)
}

// colour is for terminals only, and NO_COLOR (no-color.org) turns it off.
func (e environment) colour() bool {
	return e.onTerminal() && container.Environ(e.env)["NO_COLOR"] == ""
}
