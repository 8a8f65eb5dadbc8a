package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// Command reads the words behind "launch", flags before and behind the arguments, and does what they say: for a program
// that has no commands but those of the host.
func Command(ctx context.Context, s Streams, env map[string]string, words []string) error {
	var l Launch
	fs := flag.NewFlagSet("launch", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	l.Flags(fs)
	fs.BoolVar(&l.JSON, "json", false, "print the containers for programs (with --list)")
	var command []string
	if i := slices.Index(words, "--"); i >= 0 {
		words, command = words[:i], words[i+1:]
	}
	args, err := Parse(fs, words)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return Show(s.Out, func(w io.Writer) { Help(w, fs, "agent-init launch "+Synopsis, Summary, Example) })
	case err != nil:
		return fault.New(fault.Usage, "see agent-init launch --help", "launch: %w", err)
	}
	return l.Run(ctx, s, env, args, command)
}

// Parse reads the flags before and behind the arguments, and returns these.
func Parse(fs *flag.FlagSet, words []string) (args []string, err error) {
	for err = fs.Parse(words); fs.NArg() > 0 && err == nil; err = fs.Parse(fs.Args()[1:]) {
		args = append(args, fs.Arg(0))
	}
	return args, err
}

// Show writes a help, with each line whole on a terminal.
func Show(out io.Writer, write func(io.Writer)) error {
	var all bytes.Buffer
	write(&all)
	_, err := text.Folded(out, strings.Repeat(" ", 8)).Write(all.Bytes())
	return err
}

// Help writes what a command takes and does, with an example if there is one.
func Help(w io.Writer, fs *flag.FlagSet, usage, summary, example string) {
	fmt.Fprintf(w, "%s\n\n%s\n", usage, summary)
	head := "\nFlags:\n"
	fs.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		if value != "" {
			value = " " + value
		}
		preset := ""
		if !slices.Contains([]string{"", "false", "0", "0s"}, f.DefValue) {
			preset = fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(w, "%s  %s%s\n        %s%s\n", head, Dashes(f.Name), value, text, preset)
		head = ""
	})
	if example != "" {
		fmt.Fprintf(w, "\nExample:\n  %s\n", example)
	}
}

// Dashes is a flag as it is typed.
func Dashes(name string) string { return strings.Repeat("-", min(len(name), 2)) + name }
