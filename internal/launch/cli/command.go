package cli

import (
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
	var command, args []string
	if i := slices.Index(words, "--"); i >= 0 {
		words, command = words[:i], words[i+1:]
	}
	err := fs.Parse(words)
	for ; fs.NArg() > 0 && err == nil; err = fs.Parse(fs.Args()[1:]) {
		args = append(args, fs.Arg(0))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return help(s.Out, fs)
	case err != nil:
		return fault.New(fault.Usage, "see agent-init launch --help", "launch: %w", err)
	}
	return l.Run(ctx, s, env, args, command)
}

func help(w io.Writer, fs *flag.FlagSet) error {
	var out strings.Builder
	fmt.Fprintf(&out, "agent-init launch %s\n\n%s\n\nFlags:\n", Synopsis, Summary)
	fs.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&out, "  %s\n        %s\n", strings.TrimSpace("--"+f.Name+" "+value), usage)
	})
	fmt.Fprintf(&out, "\nExample:\n  %s\n", Example)
	_, err := io.WriteString(text.Folded(w, strings.Repeat(" ", 8)), out.String())
	return err
}
