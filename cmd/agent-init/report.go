package main

import (
	"context"
	"flag"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/internal/report/webpage"
)

func reportCommand() command {
	var o report.Options
	var html string
	return command{
		name: "report", synopsis: "[--html FILE] [--since TIME] [--dir DIR] [--json]", json: "print the data as JSON",
		summary: "tell of a run as a whole: contacts, refusals, decisions, costs, unused entries",
		example: "agent-init report --html - > report.html",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&html, "html", "", "write a page that needs nothing else to `FILE`, or with - to the standard output")
			fs.StringVar(&o.Since, "since", "", "tell of what is younger than `TIME`: a duration (10m, 1d), start (of agent-init), all, or RFC 3339; start is usual")
			fs.StringVar(&o.Dir, "dir", "", "`DIR` that a log was copied to, of a container that has ended")
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
			if html != "" {
				return webpage.WriteFile(html, e.stdout, r)
			}
			return e.show(r, strings.Repeat(" ", 4), r.Write)
		},
	}
}
