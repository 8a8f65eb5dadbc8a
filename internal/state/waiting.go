package state

import (
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// Waiting is a step of the start that takes its time.
type Waiting struct {
	Step  string    `json:"step"`
	For   string    `json:"for,omitempty"` // whom or what it waits for
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"` // when it gives up; zero: that is not known
}

// Limits says what it waits for, and for how long at most.
func (w Waiting) Limits() string {
	s := ""
	if w.For != "" {
		s = "for " + w.For
	}
	if !w.Until.IsZero() {
		if s != "" {
			s += ", "
		}
		s += "at most " + text.Shortly(w.Until.Sub(w.Since).Round(time.Second))
	}
	return s
}

// Words are the step, what it waits for and how long it does.
func (w Waiting) Words(now time.Time) string {
	s := w.Step
	if l := w.Limits(); l != "" {
		s += ": waits " + l
	}
	return s + ", since " + text.Shortly(max(0, now.Sub(w.Since)))
}

// behind continues a sentence about the start.
func (w *Waiting) behind(now time.Time) string {
	if w == nil {
		return ""
	}
	return "; " + w.Words(now)
}
