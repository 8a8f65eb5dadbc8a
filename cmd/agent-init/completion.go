package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// What a shell completes is made from the table of commands, as --help is.

func completionCommand() command {
	return command{
		name: "completion", words: "bash zsh fish", synopsis: "bash|zsh|fish",
		summary: "print the completions of a shell",
		example: "agent-init completion bash > /usr/share/bash-completion/completions/agent-init",
		run: func(_ context.Context, e environment, args []string) error {
			shells := map[string]func(io.Writer) error{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
			if len(args) == 1 && shells[args[0]] != nil {
				return shells[args[0]](e.stdout)
			}
			return fault.New(fault.Usage, "agent-init completion bash, zsh or fish", "there are completions for bash, zsh and fish, not for %q", strings.Join(args, " "))
		},
	}
}

// eachFlag calls do with the flags of c, --help included.
func (c command) eachFlag(do func(name, value, text string)) {
	c.flagSet(new(environment)).VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		do(f.Name, value, text)
	})
	do("help", "", "show the flags and an example")
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func bashCompletion(w io.Writer) error {
	s := &text.Screen{W: w}
	s.Line("# bash completion for agent-init; made by: agent-init completion bash")
	s.Line("_agent_init() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} words=\n\tif [ \"$COMP_CWORD\" -eq 1 ]; then")
	var names []string
	for _, c := range visible() {
		names = append(names, c.name)
	}
	s.Line("\t\twords=%q\n\telse\n\t\tcase ${COMP_WORDS[1]} in", strings.Join(names, " "))
	for _, c := range visible() {
		list := strings.Fields(c.words)
		c.eachFlag(func(name, _, _ string) { list = append(list, dashes(name)) })
		s.Line("\t\t%s) words=%q ;;", c.name, strings.Join(list, " "))
	}
	s.Line("\t\tesac\n\tfi")
	s.Line("\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n}")
	s.Line("complete -o default -F _agent_init agent-init")
	return s.Err
}

func zshCompletion(w io.Writer) error {
	s := &text.Screen{W: w}
	s.Line("#compdef agent-init\n# zsh completion for agent-init; made by: agent-init completion zsh")
	s.Line("_agent_init() {\n\tlocal -a commands\n\tcommands=(")
	for _, c := range visible() {
		s.Line("\t\t%s", shellWord(c.name+":"+strings.ReplaceAll(c.summary, ":", "\\:")))
	}
	s.Line("\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tcase ${words[2]} in")
	for _, c := range visible() {
		var args []string
		c.eachFlag(func(name, value, text string) {
			text = strings.NewReplacer("[", "(", "]", ")").Replace(text)
			arg := dashes(name) + "[" + text + "]"
			if value != "" {
				arg += ":" + value + ":_files"
			}
			args = append(args, shellWord(arg))
		})
		if list := c.words; list != "" {
			args = append(args, shellWord("*:word:("+list+")"))
		} else {
			args = append(args, shellWord("*:argument:_files"))
		}
		s.Line("\t%s)\n\t\t_arguments %s ;;", c.name, strings.Join(args, " \\\n\t\t\t"))
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
		if list := c.words; list != "" {
			s.Line("complete -c agent-init -n %s -f -a %s", seen, shellWord(list))
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

// shellWord quotes s for any of the shells.
func shellWord(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
