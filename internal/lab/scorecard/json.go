package scorecard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Report is what became of the attacks, for programs. docs/scorecard.schema.json describes it.
type Report struct {
	Format   int       `json:"format"` // rises when a program that reads it would have to change
	Date     string    `json:"date"`
	Kernel   string    `json:"kernel"`
	Subjects []Verdict `json:"subjects"`
}

// Verdict is one subject, and what became of each attack in the worst of its settings.
type Verdict struct {
	Title   string   `json:"title"`
	Ours    bool     `json:"ours,omitempty"` // agent-init confines it
	Works   bool     `json:"works"`          // what is allowed could be reached; else what rides on it was not tried
	Subject *Subject `json:"subject,omitempty"`
	Totals  Totals   `json:"totals"`
	Attacks []Trial  `json:"attacks"`
}

// Totals count attacks by their outcome.
type Totals struct {
	Tried   int `json:"tried"`
	Blocked int `json:"blocked"`
	Leaks   int `json:"leaks"`
	Limit   int `json:"limit"`
	Untried int `json:"untried"`
	// OwnLeaks are those of Leaks that are about what the container lets the agent do, whatever confines its network.
	OwnLeaks int `json:"own_leaks"`
}

// Trial is what became of one attack.
type Trial struct {
	ID         string   `json:"id"`
	Title      string   `json:"title"`
	Outcome    string   `json:"outcome"`
	Own        bool     `json:"own,omitempty"`        // it is about the container, not about the network
	Operations int      `json:"operations,omitempty"` // that were tried
	Why        string   `json:"why,omitempty"`        // it was not tried
	Leaks      []string `json:"leaks,omitempty"`      // what arrived
}

// reportFormat is Report.Format.
const reportFormat = 1

// NewReport has a verdict for each column.
func NewReport(kernel string, columns []Column) *Report {
	r := &Report{Format: reportFormat, Date: time.Now().Format(time.DateOnly), Kernel: kernel, Subjects: []Verdict{}}
	for _, c := range columns {
		r.Subjects = append(r.Subjects, c.verdict())
	}
	return r
}

func (c Column) verdict() Verdict {
	v := Verdict{Title: c.Title, Ours: c.Ours, Works: c.Works, Subject: c.Subject,
		Totals: Totals{Blocked: c.Count(Blocked), Leaks: c.Count(Leaked), Limit: c.Count(Limited), Untried: c.Count(Untried)}}
	v.Totals.Tried = v.Totals.Blocked + v.Totals.Leaks + v.Totals.Limit
	for i, a := range Attacks() {
		r := c.cell(i)
		t := Trial{ID: a.ID, Title: a.Title, Outcome: r.Outcome.word(), Own: a.Own, Operations: r.Tried, Leaks: r.Leaks}
		if r.Outcome == Untried {
			t.Why = r.Why
		}
		if r.Outcome == Leaked && a.Own {
			v.Totals.OwnLeaks++
		}
		v.Attacks = append(v.Attacks, t)
	}
	return v
}

// JSON is the report with each attack on a line of its own, so that two of them can be compared.
func (r *Report) JSON() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	line := func(v any) error {
		if err := e.Encode(v); err != nil {
			return err
		}
		out.Truncate(out.Len() - 1) // the newline
		return nil
	}
	fmt.Fprintf(&out, "{\"format\": %d, \"date\": %q, \"kernel\": ", r.Format, r.Date)
	if err := line(r.Kernel); err != nil {
		return nil, err
	}
	out.WriteString(", \"subjects\": [")
	for i, v := range r.Subjects {
		attacks := v.Attacks
		v.Attacks = []Trial{}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		if err := line(v); err != nil {
			return nil, err
		}
		out.Truncate(out.Len() - len("]}"))
		for i, t := range attacks {
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteByte('\n')
			if err := line(t); err != nil {
				return nil, err
			}
		}
		out.WriteString("\n]}")
	}
	out.WriteString("\n]}\n")
	return out.Bytes(), nil
}
