package main

import (
	"context"
	"flag"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/internal/report/webpage"
	"github.com/agent-init/agent-init/internal/state"
)

func reportCommand() command {
	var o report.Options
	var html string
	return command{
		name: "report", alone: true, synopsis: "[--html FILE] [--since TIME] [--dir DIR] [--json]", json: "print the data as JSON",
		summary: "tell of a run as a whole: contacts, refusals, decisions, costs, unused entries",
		example: "agent-init report --html - > report.html",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&html, "html", "", "write a page that needs nothing else to `FILE`, or with - to the standard output")
			fs.StringVar(&o.Since, "since", "", "tell of what is younger than `TIME`: a duration (10m, 1d), start (of agent-init), all, or RFC 3339; start is usual")
			fs.StringVar(&o.Dir, "dir", "", "`DIR` that a log was copied to, of a container that has ended")
			fs.StringVar(&o.Record, "record", "", "asciicast `FILE` of run --record to show; else the only one beside the log")
			fs.StringVar(&o.Prices, "prices", "", "`FILE` with lines MODEL IN OUT: what a million tokens cost")
		},
		run: func(_ context.Context, e environment, _ []string) error {
			if html != "" && e.json {
				return fault.New(fault.Usage, "leave out one of the two", "--html writes a page, and --json its data")
			}
			o.Now, o.Version = time.Now(), version
			r, err := report.Make(o)
			if err != nil {
				return err
			}
			if html != "" && !e.json {
				return writePage(e.stdout, r, html)
			}
			return e.show(r, strings.Repeat(" ", 4), r.Write)
		},
	}
}

// writePage writes the page over the file that is there. It goes through no link: root may write into a directory of the
// agent's.
func writePage(out io.Writer, r *report.Report, path string) error {
	if path == "-" {
		return webpage.Write(out, r)
	}
	f, err := state.OpenPlain(path)
	if err == nil {
		defer f.Close()
		err = f.Truncate(0)
	}
	if err == nil {
		err = webpage.Write(f, r)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fault.New(fault.Failure, "name a file that can be written, on a path without links, or -", "write the page: %w", err)
	}
	return nil
}
