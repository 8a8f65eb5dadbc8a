package grant

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// Says is what was decided, or asked for.
func (g Grant) Says() string {
	return map[Kind]string{Allow: "allowed ", Deny: "denied ", Request: "requested "}[g.Kind] + g.Target
}

// Until is how long g is to last.
func (g Grant) Until(now time.Time) string {
	switch {
	case g.Saved:
		return "for good"
	case g.Expires.IsZero():
		return "until agent-init ends"
	}
	return "for " + text.Shortly(max(0, g.Expires.Sub(now)))
}

// left is how long g goes on, in a word.
func (g Grant) left(now time.Time) string {
	switch {
	case g.Outcome != "":
		return string(g.Outcome)
	case g.Kind == Request:
		return "waits"
	case g.Saved:
		return "for good"
	case g.Expires.IsZero():
		return "this start"
	}
	return text.Shortly(max(0, g.Expires.Sub(now)))
}

// By is who has made g.
func (g Grant) By() string { return by(g.UID, g.Seat, g.Afar) }

// By is who has decided.
func (d *Decision) By() string { return by(d.UID, d.Seat, d.Afar) }

func by(uid uint32, seat bool, afar *Afar) string {
	switch {
	case afar != nil:
		return afar.String()
	case seat:
		return "the terminal" // of the container
	}
	return fmt.Sprintf("uid %d", uid)
}

// String names who it was, and the way.
func (a *Afar) String() string { return text.Clean(a.Who) + " from afar (" + text.Clean(a.Way) + ")" }

// Write shows the grants as a table, and how to turn a request into one.
func (r Report) Write(w io.Writer, now time.Time) error {
	if len(r.Grants) == 0 {
		_, err := fmt.Fprintln(w, "nothing was granted or requested at run time")
		return err
	}
	table := text.NewTable(" NO", "WHAT", "FOR", "BY", "TARGET")
	asked := uint32(0)
	for _, g := range r.Grants {
		who := g.By()
		if g.Asked > 1 {
			who += fmt.Sprintf(", %d times", g.Asked)
		}
		if g.Kind == Request && g.Outcome == "" && asked == 0 {
			asked = g.Number
		}
		table.Row(strconv.Itoa(int(g.Number)), string(g.Kind), g.left(now), who, text.Clean(g.Target))
		if g.Reason != "" { // on a line of its own, which begins like no other
			table.Note(fmt.Sprintf("because %q", text.Clean(g.Reason)))
		}
		if d := g.Decided; d != nil {
			words := fmt.Sprintf("%s by %s, %s", g.Outcome, d.By(), text.Moment(d.Time, now))
			if d.Reason != "" {
				words += fmt.Sprintf(": %q", text.Clean(d.Reason))
			}
			table.Note(words)
		}
	}
	err := table.Write(w)
	if asked != 0 && err == nil {
		_, err = fmt.Fprintf(w, "\nto grant a request:   agent-init allow --request %d --for 10m\nto turn it down:      agent-init grants --end %d\n", asked, asked)
	}
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

// Lines say what was done, what it took the place of, and what a person should know of it.
func (g Granted) Lines() []string {
	lines := []string{g.Grant.Says() + " " + g.Grant.Until(g.Grant.Made)}
	if g.Grant.Outcome != "" || g.Grant.Kind == Request {
		lines[0] = g.Grant.Target + " was " + string(WasTurnedDown)
	}
	for _, old := range g.Replaced {
		lines = append(lines, fmt.Sprintf("%d ended: %s %s", old.Number, old.Kind, old.Target))
	}
	for _, w := range g.Warnings {
		lines = append(lines, "warning: "+w)
	}
	return lines
}

// Waits says whether g is a request that nobody has decided.
func (g Grant) Waits() bool { return g.Kind == Request && g.Outcome == "" }
