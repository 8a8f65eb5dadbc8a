package main

import (
	"flag"
	"os"
	"path/filepath"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

// resultFiles are where results go, besides the page: "" is nowhere.
type resultFiles struct{ json, badge string }

func resultFlags() *resultFiles {
	r := &resultFiles{}
	flag.StringVar(&r.json, "json", "", "write the results there, as docs/scorecard.schema.json describes: `file`")
	flag.StringVar(&r.badge, "badge", "", "write a picture of their sum there, of agent-init's own places or of the one image: `file`")
	return r
}

// write writes what the flags ask for.
func (r *resultFiles) write(columns []scorecard.Column) error {
	if r.json != "" {
		data, err := scorecard.NewReport(kernel(), columns).JSON()
		if err == nil {
			err = os.WriteFile(filepath.Clean(r.json), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if r.badge == "" {
		return nil
	}
	return os.WriteFile(filepath.Clean(r.badge), []byte(scorecard.Badge(shown(columns))), 0o644)
}

// shown are the columns that a badge is about: where others stand beside agent-init's to compare, its own.
func shown(columns []scorecard.Column) []scorecard.Column {
	if len(columns) == 1 {
		return columns
	}
	var own []scorecard.Column
	for _, c := range columns {
		if c.Ours {
			own = append(own, c)
		}
	}
	return own
}
