package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

const manName = "__man"

// manCommand writes the man pages, for make man: agent-init(1), and one page for
// each command.
func manCommand() command {
	return command{
		name: manName, hidden: true, synopsis: "DIR",
		summary: "writes the man pages (for make man)",
		run: func(_ context.Context, _ environment, _ *flag.FlagSet, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "make man", "no directory was given")
			}
			if err := writePage(args[0], "agent-init", mainPage); err != nil {
				return err
			}
			for _, c := range visible() {
				if err := writePage(args[0], "agent-init-"+c.name, c.page); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func writePage(dir, name string, fill func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(dir, name+".1"))
	if err != nil {
		return err
	}
	err = fill(f)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func mainPage(w io.Writer) error {
	s := &text.Screen{W: w}
	s.Line(".TH AGENT-INIT 1 \"\" \"agent-init %s\"", roff(version))
	s.Line(".SH NAME\nagent-init \\- %s", roff(tagline))
	s.Line(".SH SYNOPSIS\n.B agent-init\n.I COMMAND\n.RI [ flags ]")
	s.Line(".SH COMMANDS")
	for _, c := range visible() {
		s.Line(".TP\n.BR agent-init\\-%s (1)\n%s", roff(c.name), roff(c.summary))
	}
	s.Line(".SH EXIT STATUS")
	for _, x := range fault.Meanings() {
		s.Line(".TP\n.B %s\n%s", roff(x[0]), roff(x[1]))
	}
	s.Line(".SH FILES")
	for _, f := range [][2]string{
		{"/etc/agent-init/policy.yaml", "settings and entries"},
		{"/etc/agent-init/allowlist.txt", "one entry per line"},
		{"/etc/agent-init/allowlist.d/*.txt, *.yaml", "more of either, in the order of their names"},
		{"/run/agent-init/", "the published state; README.md in it is for agents"},
		{"/var/log/agent-init/audit.jsonl", "the audit log"},
	} {
		s.Line(".TP\n.I %s\n%s", roff(f[0]), roff(f[1]))
	}
	return s.Err
}

func (c command) page(w io.Writer) error {
	s := &text.Screen{W: w}
	s.Line(".TH AGENT-INIT-%s 1 \"\" \"agent-init %s\"", roff(strings.ToUpper(c.name)), roff(version))
	s.Line(".SH NAME\nagent-init\\-%s \\- %s", roff(c.name), roff(c.summary))
	s.Line(".SH SYNOPSIS\n.B agent-init %s\n%s", roff(c.name), roff(c.synopsis))
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	if c.flags != nil {
		c.flags(fs)
	}
	first := true
	fs.VisitAll(func(f *flag.Flag) {
		if first {
			s.Line(".SH OPTIONS")
			first = false
		}
		value, text := flag.UnquoteUsage(f)
		s.Line(".TP\n.BR %s \" \" %s\n%s", roff(dashes(f.Name)), roff(value), roff(text+defaultOf(f)))
	})
	if c.example != "" {
		s.Line(".SH EXAMPLE\n.EX\n%s\n.EE", roff(c.example))
	}
	s.Line(".SH SEE ALSO\n.BR agent-init (1)")
	return s.Err
}

// roff escapes what troff would read as its own.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(s)
	var b strings.Builder
	for _, r := range s {
		if r > '~' {
			fmt.Fprintf(&b, "\\[u%04X]", r)
			continue
		}
		b.WriteRune(r)
	}
	s = b.String()
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	if s == "" {
		return `""`
	}
	return s
}

// defaultOf is the default of a flag, as --help and the man page show it.
func defaultOf(f *flag.Flag) string {
	if slices.Contains([]string{"", "false", "0", "0s"}, f.DefValue) {
		return ""
	}
	return fmt.Sprintf(" (default %s)", f.DefValue)
}
