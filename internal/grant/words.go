package grant

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// Says is what was decided, or asked for.
func (g Grant) Says() string {
	return map[Kind]string{Allow: "allowed ", Deny: "denied ", Request: "requested "}[g.Kind] + g.Target
}

// Until is how long g is to last.
func (g Grant) Until(now time.Time) string {
	if g.Expires.IsZero() {
		return "until the keeper ends"
	}
	return "for " + text.Roughly(max(0, g.Expires.Sub(now)))
}

// left is how long g goes on, in a word.
func (g Grant) left(now time.Time) string {
	switch {
	case g.Outcome != "":
		return string(g.Outcome)
	case g.Kind == Request:
		return "waits"
	case g.Expires.IsZero():
		return "no end"
	}
	return text.Roughly(max(0, g.Expires.Sub(now)))
}

// Write shows the grants as a table, and how to turn a request into one.
func (r Report) Write(w io.Writer, now time.Time) error {
	if len(r.Grants) == 0 {
		_, err := fmt.Fprintln(w, "nothing was granted or requested at run time")
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%4s  %-7s  %-32s  %-11s  %s\n", "NO", "WHAT", "TARGET", "FOR", "BY")
	asked := uint32(0)
	for _, g := range r.Grants {
		who := fmt.Sprintf("uid %d", g.UID)
		if g.Asked > 1 {
			who += fmt.Sprintf(", %d times", g.Asked)
		}
		if g.Kind == Request && g.Outcome == "" && asked == 0 {
			asked = g.Number
		}
		fmt.Fprintf(&b, "%4d  %-7s  %-32s  %-11s  %s\n", g.Number, g.Kind, text.Clean(g.Target), g.left(now), who)
		if g.Reason != "" { // on a line of its own, which begins like no other
			fmt.Fprintf(&b, "      because %q\n", text.Clean(g.Reason))
		}
		if d := g.Decided; d != nil {
			fmt.Fprintf(&b, "      %s by uid %d, %s", g.Outcome, d.UID, text.Moment(d.Time, now))
			if d.Reason != "" {
				fmt.Fprintf(&b, ": %q", text.Clean(d.Reason))
			}
			b.WriteByte('\n')
		}
	}
	if asked != 0 {
		fmt.Fprintf(&b, "\nto grant a request:   agent-init allow --request %d --for 10m\nto turn it down:      agent-init grants --end %d\n", asked, asked)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Standing is what became of a request, for whoever asks about its target.
func (g Grant) Standing() string {
	if g.Outcome == "" {
		return fmt.Sprintf("request %d, for %s, waits: agent-init allow --request %[1]d --for 10m    (root)", g.Number, text.Clean(g.Target))
	}
	words := fmt.Sprintf("request %d, for %s, was %s", g.Number, text.Clean(g.Target), g.Outcome)
	if g.Decided != nil && g.Decided.Reason != "" {
		words += fmt.Sprintf(": %q", text.Clean(g.Decided.Reason))
	}
	return words
}

// Granted answers allow and deny: the grant that was made, and what it took the place of.
type Granted struct {
	Version  int      `json:"version"`
	Grant    Grant    `json:"grant"`
	Replaced []Grant  `json:"replaced"`
	Warnings []string `json:"warnings"`
}

// Proposed answers a request.
type Proposed struct {
	Version int    `json:"version"`
	Number  uint32 `json:"number,omitempty"` // 0: there is no need for one
	Target  string `json:"target"`
	Allowed string `json:"allowed,omitempty"` // the rule that allows it already
}
