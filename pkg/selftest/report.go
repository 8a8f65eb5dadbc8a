package selftest

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/agent-init/agent-init/internal/text"
)

// Version is the version of Report's JSON.
const Version = 1

// Report is what came of a run.
type Report struct {
	Version int       `json:"version"`
	OK      bool      `json:"ok"` // there were checks, and each is OK
	Started time.Time `json:"started,omitzero"`
	Millis  float64   `json:"millis"` // how long it took
	Checks  []Check   `json:"checks"`
}

// Check is one thing that was tried. Target and Detail are printable text.
type Check struct {
	Name   string  `json:"name"`             // the kind, see the package's documentation
	Target string  `json:"target"`           // what was tried
	Family string  `json:"family,omitempty"` // IPv4 or IPv6, where the probe is for one
	Want   string  `json:"want"`             // Blocked or Reachable
	Got    string  `json:"got"`              // Blocked, Reachable or Unknown
	OK     bool    `json:"ok"`
	Detail string  `json:"detail,omitempty"` // how
	Millis float64 `json:"millis"`
}

// NewReport is what came of those checks.
func NewReport(started time.Time, took time.Duration, checks []Check) Report {
	r := Report{Version: Version, Started: started.UTC(), Millis: Millis(took), Checks: checks}
	r.OK = r.allOK()
	return r
}

func (r Report) allOK() bool {
	for _, c := range r.Checks {
		if !c.OK || c.Got != c.Want {
			return false
		}
	}
	return len(r.Checks) > 0
}

// Failures says in one sentence each what is not as it must be.
func (r Report) Failures() []string {
	var out []string
	for _, c := range r.Checks {
		if !c.OK {
			out = append(out, c.sentence())
		}
	}
	if len(r.Checks) == 0 {
		out = append(out, "nothing was checked")
	}
	return out
}

func (c Check) sentence() string {
	switch {
	case c.Got == Unknown:
		return fmt.Sprintf("%s (%s) could not be checked: %s", c.Target, c.Name, c.Detail)
	case c.Want == Reachable:
		return fmt.Sprintf("%s should be reachable: %s", c.Target, c.Detail)
	}
	return fmt.Sprintf("%s %s, which should be blocked", c.Target, c.Detail)
}

// maxText bounds a text of a Check, in bytes.
const maxText = 300

// Clean makes text that a server may have had a hand in fit for a terminal.
func Clean(s string) string {
	s = text.Clean(s)
	if len(s) <= maxText {
		return s
	}
	cut := maxText - len("...")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// Values of Check.Want and Check.Got.
const (
	Blocked   = "blocked"
	Reachable = "reachable"
	Unknown   = "unknown" // Got only: the probe itself failed, which proves nothing
)

// Millis rounds d to a tenth of a millisecond.
func Millis(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*10) / 10
}
