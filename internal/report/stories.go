package report

import (
	"time"

	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/pkg/audit"
)

const (
	maxStories = 300
	maxEvents  = 12 // of one story, and its last one
	firstNotes = 100
	lastNotes  = 400
)

// Story is what became of one grant or request, as it was logged.
type Story struct {
	Number string `json:"number"` // grant-N, as rules cite it
	Target string `json:"target"`
	Events []Note `json:"events"`
	More   int    `json:"more,omitempty"` // events between the last but one and the last
}

// grant takes in what happened to a grant or a request. Numbers begin anew with each start, so the target counts too.
func (t *tally) grant(e audit.Event) {
	s := t.stories[e.Rule+"\x00"+e.Name]
	if s == nil {
		if len(t.order) >= maxStories {
			t.leftOut.Grants++
			return
		}
		s = &Story{Number: e.Rule, Target: e.Name}
		t.stories[e.Rule+"\x00"+e.Name] = s
		t.order = append(t.order, s)
	}
	if len(s.Events) == maxEvents {
		s.Events = s.Events[:maxEvents-1]
		s.More++
	}
	s.Events = append(s.Events, noteOf(e))
}

func (t *tally) grants() []Story {
	list := []Story{}
	for _, s := range t.order {
		list = append(list, *s)
	}
	return list
}

func noteOf(e audit.Event) Note {
	return Note{Time: e.Time, Kind: e.Kind, Verdict: e.Verdict, Text: e.Reason, By: inspect.Asked(e), Count: 1 + e.Suppressed}
}

// notes are the first and the last of many: how it began, and how it ended.
type notes struct {
	first, last []Note
	left        int
}

func (n *notes) add(e audit.Event) {
	switch {
	case len(n.first) < firstNotes:
		n.first = append(n.first, noteOf(e))
	case len(n.last) == lastNotes:
		n.left++
		copy(n.last, n.last[1:])
		n.last[lastNotes-1] = noteOf(e)
	default:
		n.last = append(n.last, noteOf(e))
	}
}

func (n *notes) list() []Note { return append(append([]Note{}, n.first...), n.last...) }

const maxBins = 120

// Timeline is how much there was when, in bins of the same length, from the first event of all to the last.
type Timeline struct {
	Start time.Time `json:"start,omitzero"`
	Step  float64   `json:"step_s"` // seconds
	Bins  []Bin     `json:"bins"`
}

// Bin is what fell into one length of time.
type Bin struct {
	Allowed uint64 `json:"allowed"`
	Refused uint64 `json:"refused"`
	Bytes   uint64 `json:"bytes"`
}

// reach has the bins go to a time, and returns which is its. Nobody knows how long the log is before it ends, so the bins
// become longer.
func (l *Timeline) reach(t time.Time) int {
	if l.Step == 0 {
		l.Start, l.Step = t.Truncate(time.Second), 1
	}
	i := max(0, int(t.Sub(l.Start).Seconds()/l.Step)) // a clock may have been set back
	for i >= maxBins {
		half := l.Bins[:0]
		for k := 0; k < len(l.Bins); k += 2 {
			b := l.Bins[k]
			if k+1 < len(l.Bins) {
				b.join(l.Bins[k+1])
			}
			half = append(half, b)
		}
		l.Bins, l.Step, i = half, l.Step*2, i/2
	}
	for len(l.Bins) <= i {
		l.Bins = append(l.Bins, Bin{})
	}
	return i
}

// add takes in an event of the agent's.
func (l *Timeline) add(e audit.Event) {
	if e.Time.IsZero() {
		return
	}
	b := Bin{Bytes: e.Out + e.In}
	if inspect.Denied(e) {
		b.Refused = 1 + e.Suppressed
	} else {
		b.Allowed = 1 + e.Suppressed
	}
	l.Bins[l.reach(e.Time)].join(b)
}

func (b *Bin) join(other Bin) {
	b.Allowed, b.Refused, b.Bytes = b.Allowed+other.Allowed, b.Refused+other.Refused, b.Bytes+other.Bytes
}
