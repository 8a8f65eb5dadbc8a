package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// Bytes is a number of bytes as people read it: to three figures.
func Bytes(n uint64) string { return text.Figures(n, " ") + "B" }

// Grouped is a number with its thousands apart.
func Grouped(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

const shownLines = 8 // of each list, in words

// Write says in few lines what the report has.
func (r *Report) Write(out io.Writer, coloured bool) error {
	w := &text.Screen{W: out}
	if r.First.IsZero() {
		w.Line("the log has no events")
	} else {
		w.Line("%s to %s, %s", text.Moment(r.First, r.Made), text.Moment(r.Last, r.Made), r.Length())
	}
	for _, f := range r.Findings {
		w.Line("%s %s", mark(f.Level, coloured), text.Clean(f.Text))
	}
	for _, list := range []shortList{r.contactList(), r.refusalList(), r.routeList(), r.unusedList()} {
		list.write(w)
	}
	w.Line("\nas a page: agent-init report --html - > report.html")
	return w.Err
}

// shortList is the beginning of a list, under a head.
type shortList struct {
	head  string
	table *text.Table
	rows  int // that there are
}

func (l *shortList) row(cells ...string) {
	if l.rows++; l.rows <= shownLines {
		for i := range cells {
			cells[i] = text.Clean(cells[i])
		}
		l.table.Row(cells...)
	}
}

// note says something below the last row, if that is shown.
func (l *shortList) note(line string) {
	if l.rows <= shownLines {
		l.table.Note(text.Clean(line))
	}
}

func (l *shortList) write(w *text.Screen) {
	if l.rows == 0 || w.Err != nil {
		return
	}
	w.Line("\n%s", l.head)
	if w.Err == nil {
		w.Err = l.table.Write(w.W)
	}
	if l.rows > shownLines {
		w.Line("… and %d more", l.rows-shownLines)
	}
}

func mark(level string, coloured bool) string {
	sign := map[string]string{Good: "+", Mind: "!", Bad: "X"}[level]
	return text.Painted(sign, map[string]string{Good: "32", Mind: "33", Bad: "31;1"}[level], coloured)
}

// Length is how long the run took, as far as the log tells.
func (r *Report) Length() string { return text.Shortly(r.Last.Sub(r.First).Round(time.Second)) }

func (r *Report) contactList() shortList {
	l := shortList{head: fmt.Sprintf("contacted: %s, %s out, %s in", text.Counted(r.Totals.Contacts, "name", "names"), Bytes(r.Totals.Out), Bytes(r.Totals.In)),
		table: text.NewTable("NAME", " OUT", " IN", "BY WAY OF")}
	for _, c := range r.Contacts {
		l.row(c.Name, Bytes(c.Out), Bytes(c.In), strings.Join(c.Ways, ", "))
	}
	l.rows = max(l.rows, r.Totals.Contacts)
	return l
}

func (r *Report) refusalList() shortList {
	l := shortList{head: "refused: " + text.Times(r.Totals.Refused), table: text.NewTable(" TIMES", "WHAT")}
	for _, f := range r.Refusals {
		with := "to allow it: " + f.Line
		switch {
		case f.ByRule:
			with = "denied by " + f.Rule
		case f.Since != "":
			with = "allowed since, by " + f.Since
		case f.Line == "":
			with = f.Reason
		}
		l.row(Grouped(f.Count), f.Title())
		l.note(with)
	}
	l.rows += r.LeftOut.Refusals
	return l
}

// Title is what was refused, in a few words.
func (f *Refusal) Title() string {
	s := f.What
	if f.Method != "" || f.Path != "" {
		return strings.TrimSpace(f.Method + " " + s + f.Path)
	}
	if f.Port != 0 {
		s += fmt.Sprintf(":%d", f.Port)
	}
	if f.Proto != "" && f.Proto != "tcp" && f.Port != 0 {
		s += "/" + f.Proto
	}
	return s
}

func (r *Report) routeList() shortList {
	l := shortList{head: "routes of the broker", table: text.NewTable("ROUTE", " REQUESTS", " REFUSED", " TOKENS IN", " OUT", " COST")}
	for _, x := range r.Routes {
		l.row(x.Name, Grouped(x.Requests), Grouped(x.Refused), Grouped(x.TokensIn), Grouped(x.TokensOut), x.Cost.String())
	}
	return l
}

func (r *Report) unusedList() shortList {
	l := shortList{head: "allowed, and never used", table: text.NewTable("ENTRY", "AT")}
	if r.Policy == nil {
		return l
	}
	for _, e := range r.Policy.Entries {
		if e.Unused() {
			l.row(e.Rule, e.Source)
		}
	}
	return l
}
