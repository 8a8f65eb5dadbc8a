package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/detect"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/launch/cli"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

func checkCommand() command {
	var dir, ceiling string
	var effective, path bool
	return command{
		name: "check", most: -1, synopsis: "[--effective] [--json] [--path] [FILE…|-]", json: "print errors, warnings and the policy as JSON",
		summary: "check policy and allowlist files, without a privilege and without the network",
		example: "agent-init check --effective allowlist.txt",
		flags: func(fs *flag.FlagSet) {
			policyDir(fs, &dir, "`DIR` to check if no file is given")
			fs.StringVar(&ceiling, "ceiling", state.CeilingHome, "`DIR` that holds the ceiling.d which the policy is below")
			fs.BoolVar(&effective, "effective", false, "print the merged policy, presets expanded")
			fs.BoolVar(&path, "path", false, "also check that only root can replace this program, or put another one before it on PATH")
		},
		run: func(_ context.Context, e environment, args []string) error {
			if path {
				if err := container.ProgramPathFault(container.Environ(e.env)["PATH"]); err != nil {
					return err
				}
			}
			c, err := inspect.Check(dir, ceiling, args, effective)
			switch {
			case err != nil:
				return err
			case e.json:
				err = text.JSON(e.stdout, c)
			default:
				err = c.Print(e.stdout, e.stderr)
			}
			return cmp.Or(err, verdict(c.OK, fault.Policy))
		},
	}
}

// version is set by the linker.
var version = "dev"

func versionCommand() command {
	return command{
		name: "version", summary: "show the version",
		example: "agent-init version",
		run: func(_ context.Context, e environment, _ []string) error {
			_, err := fmt.Fprintf(e.stdout, "agent-init %s (%s)\n", version, runtime.Version())
			return err
		},
	}
}

func detectCommand() command {
	var private, routes bool
	return command{
		name: "detect", most: -1, words: strings.ReplaceAll(detect.Managers, "|", " "), synopsis: "[--private] [--routes] " + detect.Managers + "…",
		summary: "print allowlist entries from this image's own package-manager configuration",
		example: "RUN agent-init detect npm >> /etc/agent-init/allowlist.d/npm.txt\n\n" +
			"Read, in the order that the package manager itself reads them:\n" +
			"  npm    npm_config_*, .npmrc of the project, the user and the prefix, then npm's own default\n" +
			"  go     GOPROXY, GOSUMDB, GONOPROXY and GOPRIVATE as \"go env\" has them, or the environment, GOENV and go.env\n" +
			"  apt    what apt says of sources.list, sources.list.d/*.list and *.sources; lists of mirrors, proxies of apt.conf\n" +
			"  pip    PIP_*, pip.conf of the environment, the user and the system\n" +
			"  cargo  .cargo/config.toml from here upwards, and that of CARGO_HOME\n" +
			"If detect can't understand a setting, it fails and prints nothing. It prints a proxy as a comment: an\n" +
			"entry for it would open whatever the proxy lets through. A server may name further hosts for the packages\n" +
			"themselves; the audit log shows them when they are refused.\n" +
			"With --routes it prints the section broker: of a policy instead, by which the agent reads packages over the\n" +
			"broker and publishes none: RUN agent-init detect --routes npm pip > /etc/agent-init/policy.yaml\n" +
			"github-meta is no package manager: it is the preset @github-meta, the addresses of git at GitHub, for SSH,\n" +
			"as they were when this agent-init was released.",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&private, "private", false, "mark the entries private: the servers have private addresses")
			fs.BoolVar(&routes, "routes", false, "print routes of a policy, of npm, go, pip and cargo")
		},
		run: func(ctx context.Context, e environment, args []string) error {
			dir, err := os.Getwd()
			if err != nil {
				return fault.New(fault.Failure, "run it in a directory that exists", "find the working directory: %w", err)
			}
			return runDetect(ctx, e, dir, detecting{private, routes}, args)
		},
	}
}

// detecting is how detect prints what it finds.
type detecting struct{ private, routes bool }

// runDetect prints either all that was asked for, or nothing.
func runDetect(ctx context.Context, e environment, dir string, how detecting, args []string) error {
	const remedy = "agent-init detect " + detect.Managers
	if len(args) == 0 {
		return fault.New(fault.Usage, remedy, "detect: say which package manager")
	}
	for _, arg := range args {
		switch {
		case !detect.Known(arg):
			return fault.New(fault.Usage, remedy, "detect: unknown package manager %q", arg)
		case how.routes && !detect.Routed(arg):
			return fault.New(fault.Usage, "leave --routes out", "detect: the broker has no route for %s", arg)
		}
	}
	var out strings.Builder
	if how.routes {
		section, err := detect.Routes(ctx, container.Environ(e.env), dir, args, how.private)
		if err != nil {
			return fault.New(fault.Policy, "correct the configuration, or write the route by hand", "detect %w", err)
		}
		out.WriteString(section)
		args = nil
	}
	for _, arg := range args {
		entries, err := detect.Entries(ctx, container.Environ(e.env), dir, arg, how.private)
		if err != nil {
			return fault.New(fault.Policy, "correct the configuration, or write the entries by hand", "detect %s: %w", arg, err)
		}
		out.WriteString(entries)
	}
	_, err := io.WriteString(e.stdout, out.String())
	return err
}

func completionCommand() command {
	return command{
		name: "completion", least: 1, most: 1, takes: "the name of a shell", words: "bash zsh fish", synopsis: "bash|zsh|fish",
		summary: "print the completions of a shell",
		example: "agent-init completion bash > /usr/share/bash-completion/completions/agent-init",
		run: func(_ context.Context, e environment, args []string) error {
			shells := map[string]func(io.Writer) error{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
			if shells[args[0]] != nil {
				return shells[args[0]](e.stdout)
			}
			return fault.New(fault.Usage, "agent-init completion bash, zsh or fish", "there are completions for bash, zsh and fish, not for %q", args[0])
		},
	}
}

func (c command) eachFlag(do func(name, value, text string)) {
	c.flagSet(new(environment)).VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		do(f.Name, value, text)
	})
	do("help", "", "show the flags and an example")
}

func bashCompletion(w io.Writer) error {
	s := &text.Screen{W: w}
	s.Line("# bash completion for agent-init; made by: agent-init completion bash\n_agent_init() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} words=")
	s.Line("\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\t\twords=%q\n\telse\n\t\tcase ${COMP_WORDS[1]} in", strings.Join(names(), " "))
	for _, c := range visible() {
		list := strings.Fields(c.words)
		c.eachFlag(func(name, _, _ string) { list = append(list, cli.Dashes(name)) })
		s.Line("\t\t%s) words=%q ;;", c.name, strings.Join(list, " "))
	}
	s.Line("\t\tesac\n\tfi\n\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n}\ncomplete -o default -F _agent_init agent-init")
	return s.Err
}

func zshCompletion(w io.Writer) error {
	s := &text.Screen{W: w}
	s.Line("#compdef agent-init\n# zsh completion for agent-init; made by: agent-init completion zsh\n_agent_init() {\n\tlocal -a commands\n\tcommands=(")
	for _, c := range visible() {
		s.Line("\t\t%s", shellWord(c.name+":"+strings.ReplaceAll(c.summary, ":", "\\:")))
	}
	s.Line("\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tcase ${words[2]} in")
	for _, c := range visible() {
		var args []string
		c.eachFlag(func(name, value, text string) {
			arg := cli.Dashes(name) + "[" + strings.NewReplacer("[", "(", "]", ")").Replace(text) + "]"
			if value != "" {
				arg += ":" + value + ":_files"
			}
			args = append(args, shellWord(arg))
		})
		rest := "*:argument:_files"
		if c.words != "" {
			rest = "*:word:(" + c.words + ")"
		}
		s.Line("\t%s)\n\t\t_arguments %s ;;", c.name, strings.Join(append(args, shellWord(rest)), " \\\n\t\t\t"))
	}
	s.Line("\tesac\n}\n_agent_init \"$@\"")
	return s.Err
}

func fishCompletion(w io.Writer) error {
	s := &text.Screen{W: w}
	s.Line("# fish completion for agent-init; made by: agent-init completion fish")
	for _, c := range visible() {
		s.Line("complete -c agent-init -n __fish_use_subcommand -f -a %s -d %s", c.name, shellWord(c.summary))
		seen := fmt.Sprintf("'__fish_seen_subcommand_from %s'", c.name)
		if c.words != "" {
			s.Line("complete -c agent-init -n %s -f -a %s", seen, shellWord(c.words))
		}
		c.eachFlag(func(name, value, text string) {
			option := "-l " + name
			if len(name) == 1 {
				option = "-s " + name
			}
			if value != "" {
				option += " -r"
			}
			s.Line("complete -c agent-init -n %s %s -d %s", seen, option, shellWord(text))
		})
	}
	return s.Err
}

func shellWord(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
