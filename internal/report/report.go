// Package report tells of a run as a whole: who was contacted, what was refused and which line would allow it, what
// people decided, what the broker's routes came to, what of the policy nobody used, and how far the log can be relied
// on. It reads what everybody may read, writes nothing, and asks nobody.
//
// What it reads the agent has chosen, down to the names of models. So all of it is bounded, whatever the log is like,
// and whoever shows it has to treat each text as hostile.
package report

import (
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/pkg/audit"
)

// Version is that of the data. New fields may come; those that are there keep their names and meanings.
const Version = 2

// Report is what report --json prints, and all that a page shows.
type Report struct {
	Version   int                 `json:"version"`
	Made      time.Time           `json:"made"`
	Host      string              `json:"host,omitempty"` // the container's name for itself
	Since     time.Time           `json:"since,omitzero"` // what is older is left out
	First     time.Time           `json:"first,omitzero"` // of the events
	Last      time.Time           `json:"last,omitzero"`
	Now       *Now                `json:"now,omitempty"` // how agent-init does; left out where nothing is published
	Findings  []Finding           `json:"findings"`
	Totals    Totals              `json:"totals"`
	Timeline  Timeline            `json:"timeline"`
	Contacts  []Contact           `json:"contacts"` // by bytes
	Refusals  []Refusal           `json:"refusals"` // by count
	Lines     inspect.Suggestions `json:"suggested"`
	Inbound   []Inbound           `json:"inbound"`
	Grants    []Story             `json:"grants"`
	Standing  []grant.Grant       `json:"standing"` // grants and requests as they were published last
	Routes    []Route             `json:"routes"`
	Policy    *Policy             `json:"policy,omitempty"` // left out where none is published
	SelfTests []Note              `json:"selftests"`
	Notes     []Note              `json:"notes"` // what else has happened: starts, sessions, reloads, faults
	Hashes    Hashes              `json:"hashes"`
	Log       Log                 `json:"log"`
	LeftOut   LeftOut             `json:"left_out,omitzero"`
}

// Now is how agent-init does, or did.
type Now struct {
	Live      bool      `json:"live"` // it runs; else this is what it published last
	OK        bool      `json:"ok"`
	Why       []string  `json:"why"` // it is not
	Mode      string    `json:"mode"`
	Published time.Time `json:"published,omitzero"`
	Open      string    `json:"open,omitempty"` // how the agent is let out: monitor, no firewall
	Started   time.Time `json:"started,omitzero"`
	Agent     string    `json:"agent"`
	UID       uint32    `json:"uid"`
	Backend   string    `json:"backend"`
	Caveats   []string  `json:"caveats"`
	Repairs   int       `json:"repairs"`
	Restarts  int       `json:"restarts"` // of the guard
	Checks    int       `json:"checks"`   // of the last self-test; 0: none was run
	Failures  []string  `json:"failures"`
	Keys      []string  `json:"keys"` // who holds those of APIs, in sentences
}

// The levels of a finding.
const (
	Good = "good"
	Mind = "mind" // a person should know
	Bad  = "bad"
)

// Finding is a sentence that a reader should meet first.
type Finding struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Totals are what all comes to, what is left out of the lists included.
type Totals struct {
	Contacts    int    `json:"contacts"`
	Lookups     uint64 `json:"lookups"` // of allowed names, as far as they were not answered from memory
	Connections uint64 `json:"connections"`
	Requests    uint64 `json:"requests"`  // that could be seen as such
	Out         uint64 `json:"bytes_out"` // as far as they could be seen
	In          uint64 `json:"bytes_in"`
	Refused     uint64 `json:"refused"`
	LetOut      uint64 `json:"let_out"` // in monitor mode: what enforce mode would have refused
	TokensIn    uint64 `json:"tokens_in"`
	TokensOut   uint64 `json:"tokens_out"`
	Faults      uint64 `json:"faults"`
}

// Note is an event that is told as it was logged.
type Note struct {
	Time    time.Time     `json:"time"`
	Kind    audit.Kind    `json:"event"`
	Verdict audit.Verdict `json:"verdict"`
	Text    string        `json:"text"`
	By      string        `json:"by,omitempty"`
	Count   uint64        `json:"count"`
}

// Log is how far the log can be relied on.
type Log struct {
	File       string `json:"file"`
	Events     uint64 `json:"events"`     // in lines of their own
	Folded     uint64 `json:"folded"`     // that are counted in other lines
	Unreadable uint64 `json:"unreadable"` // lines that are no event
	Missing    uint64 `json:"missing"`    // numbers that no line has
	Unwritten  uint64 `json:"unwritten"`  // events that agent-init says it could not write
	Torn       bool   `json:"torn"`       // the last line has no end
}

// LeftOut is how much the bounds keep out of the lists. It is in the totals.
type LeftOut struct {
	Contacts int `json:"contacts,omitempty"`
	Refusals int `json:"refusals,omitempty"`
	Grants   int `json:"grants,omitempty"`
	Notes    int `json:"notes,omitempty"`
}
