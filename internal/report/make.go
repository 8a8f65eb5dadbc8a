package report

import (
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/pkg/audit"
)

// Options say what a report is about.
type Options struct {
	Dir     string // where the log was copied to; "" for that of this container
	Since   string // 10m, 1d, start, all, or RFC 3339; "" is start where agent-init runs, and else all
	Prices  string // a file
	Version string // of this program
	Now     time.Time
}

// Make reads what there is, and makes a report of it.
func Make(o Options) (*Report, error) {
	s, err := find(o.Dir)
	if err != nil {
		return nil, err
	}
	prices, err := readPrices(o.Prices)
	if err != nil {
		return nil, err
	}
	r := &Report{Version: Version, Made: o.Now.UTC(), Now: nowOf(s, o.Now), Standing: append([]grant.Grant{}, s.grants...)}
	if r.Since, err = since(s, o); err != nil {
		return nil, err
	}
	if !s.copied {
		r.Host, _ = os.Hostname()
	}
	r.Log.File, r.Log.Torn = s.log, torn(s.log)
	t := newTally(s, r)
	if err := audit.Lines(s.log, func(line []byte) bool { t.line(line); return true }); err != nil {
		return nil, logFault(err, s)
	}
	t.finish(s, prices)
	r.Hashes = hashesOf(s, o.Version)
	r.Findings = r.findings()
	return r, nil
}

// since is the time from which on events count.
func since(s *source, o Options) (time.Time, error) {
	var started time.Time
	if s.state != nil {
		started = s.state.Started
	}
	switch {
	case o.Since == "all", o.Since == "" && !s.live():
		return time.Time{}, nil
	case o.Since == "":
		o.Since = "start"
	}
	t, err := inspect.Since(o.Since, started, o.Now)
	return t.UTC(), err
}

func logFault(err error, s *source) error {
	if s.copied {
		return fault.New(fault.Failure, "give a directory with a copy of audit.jsonl", "%w", err)
	}
	return inspect.LogFault(err)
}

// finish makes lists of what was counted.
func (t *tally) finish(s *source, prices []price) {
	r := t.report
	r.Contacts, t.leftOut.Contacts = t.contacts.list()
	r.Refusals, t.leftOut.Refusals = t.refusals.list()
	r.Inbound, _ = t.inbound.list()
	t.explain(r.Refusals)
	r.Lines = t.proposals.Since(r.Since)
	r.Grants = t.grants()
	r.Routes = t.routesOf()
	charge(r.Routes, prices)
	t.connected(s)
	r.Policy = t.policyOf(s)
	r.SelfTests, r.Notes = t.selfTests.list(), t.notes.list()
	t.leftOut.Notes = t.notes.left + t.selfTests.left
	t.totals.Contacts = len(r.Contacts) + t.leftOut.Contacts
	r.Totals, r.LeftOut, r.Timeline = t.totals, t.leftOut, t.timeline
	if r.Timeline.Bins == nil {
		r.Timeline.Bins = []Bin{}
	}
}
