package selftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Version is the version of Report's JSON.
const Version = 1

// Report is what came of a run.
type Report struct {
	Version int       `json:"version"`
	OK      bool      `json:"ok"` // there were checks, and each is OK
	Started time.Time `json:"started"`
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

func newReport(started time.Time, took time.Duration, checks []Check) Report {
	r := Report{Version: Version, Started: started.UTC(), Millis: millis(took), Checks: checks}
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

// maxReport bounds what ReadReport reads, in bytes.
const maxReport = 4 << 20

// ReadReport reads the JSON of one Report, as a child process printed it. It
// believes no OK that the checks don't bear out.
func ReadReport(r io.Reader) (Report, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxReport+1))
	if err != nil {
		return Report{}, fmt.Errorf("read self-test report: %w", err)
	}
	if len(raw) > maxReport {
		return Report{}, errors.New("self-test report is too long")
	}
	var rep Report
	if err := json.Unmarshal(raw, &rep); err != nil {
		return Report{}, fmt.Errorf("read self-test report: %v", err)
	}
	if rep.Version != Version {
		return Report{}, fmt.Errorf("self-test report has version %d, not %d", rep.Version, Version)
	}
	for i := range rep.Checks {
		c := &rep.Checks[i]
		c.Name, c.Target, c.Family, c.Detail = clean(c.Name), clean(c.Target), clean(c.Family), clean(c.Detail)
		c.Want, c.Got = clean(c.Want), clean(c.Got)
		c.OK = c.OK && c.Got == c.Want
	}
	rep.OK = rep.OK && rep.allOK()
	return rep, nil
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

// clean makes text that a server may have had a hand in fit for a terminal.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) <= maxText {
		return s
	}
	cut := maxText - len("...")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
