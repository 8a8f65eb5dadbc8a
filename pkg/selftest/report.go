package selftest

import (
	"fmt"
	"io"
	"math"
	"strings"
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

const maxText = 300 // bounds a text of a Check, in bytes

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

// titles say for people what a check tries. The others are shown by their target.
var titles = map[string]string{
	"dns-system": "denied name, system's DNS", "dns-direct": "denied name, public DNS", "denied-name": "denied name, connection",
	"tcp": "TCP to public addresses", "udp": "UDP/443 (QUIC)", "ping": "ICMP echo", "metadata": "cloud metadata",
	"raw-socket": "raw sockets", "packet-socket": "packet sockets", "vsock-socket": "host sockets (vsock)",
	"net-admin": "network administration", "become-root": "becoming root", "other-network": "other networks' processes",
	"gateway": "the gateway's own services", "other-name": "denied name, allowed address",
}

// row is one line of the table: one failed check, or all good ones of a kind.
type row struct {
	ok            bool
	title, result string
	count         int
	millis        float64

	details []string // of the checks that a row stands for, each once
	seen    map[string]int
}

// WriteTable writes the report for people: what failed first, each on a line of its own, then what is well, one line
// for each kind and family, which fits in 80 columns. With color it uses the terminal's red and green.
func (r Report) WriteTable(w io.Writer, color bool) error {
	rows := r.rows()
	var titles, results, failed int
	for _, rw := range rows {
		titles = max(titles, utf8.RuneCountInString(rw.title))
		results = max(results, utf8.RuneCountInString(rw.result))
		if !rw.ok {
			failed++
		}
	}
	var b strings.Builder
	for _, rw := range rows {
		fmt.Fprintf(&b, "%s  %-*s  %-*s  %9s\n", mark(rw.ok, color), titles, rw.title, results, rw.result, fmt.Sprintf("%.1f ms", rw.millis))
	}
	verdict := "self-test passed"
	if !r.OK {
		verdict = fmt.Sprintf("self-test FAILED: %d not as it must be", failed)
	}
	fmt.Fprintf(&b, "%s (%d checks, %.0f ms)\n", verdict, len(r.Checks), r.Millis)
	_, err := io.WriteString(w, b.String())
	return err
}

func mark(ok, color bool) string {
	if ok {
		return text.Painted("ok  ", "32", color)
	}
	return text.Painted("FAIL", "31;1", color)
}

func (r Report) rows() []row {
	var failed, good []row
	index := make(map[[2]string]int) // into good
	for _, c := range r.Checks {
		if !c.OK {
			failed = append(failed, row{title: c.Target, result: "must be " + c.Want + ": " + c.Detail, millis: c.Millis})
			continue
		}
		t, ok := titles[c.Name]
		if !ok {
			t = c.Target
		}
		if c.Family != "" {
			t += ", " + c.Family
		}
		key := [2]string{c.Name, t}
		i, ok := index[key]
		if !ok {
			i = len(good)
			index[key] = i
			good = append(good, row{ok: true, title: t, seen: make(map[string]int)})
		}
		rw := &good[i]
		rw.count++
		rw.millis = max(rw.millis, c.Millis)
		if rw.seen[c.Detail]++; rw.seen[c.Detail] == 1 {
			rw.details = append(rw.details, c.Detail)
		}
	}
	for i := range good {
		good[i].finish()
	}
	return append(failed, good...)
}

// finish puts the counts into words, where there is more than one to count.
func (rw *row) finish() {
	if rw.count > 1 {
		rw.title = fmt.Sprintf("%s (%d)", rw.title, rw.count)
	}
	if len(rw.details) > 1 {
		for i, d := range rw.details {
			rw.details[i] = fmt.Sprintf("%d %s", rw.seen[d], d)
		}
	}
	rw.result = strings.Join(rw.details, ", ")
}
