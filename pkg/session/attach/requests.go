package attach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
)

// Requests is how a person at the terminal sees what the agent asks for, and answers.
type Requests struct {
	List   func() ([]Asked, error)                          // the oldest first; those that were decided lately may be among them
	Answer func(Asked, sessionop.Verdict) ([]string, error) // what came of it, in lines; nil: this person may only look
	Who    string                                           // may answer, if this person may not
}

// Asked is what the agent asks for. It has chosen all of its words.
type Asked struct {
	Number               uint32
	Target, Reason, From string
	Since                time.Time
	Became               string // what it has come to; empty: it waits
}

var verdicts = map[string]sessionop.Verdict{"1": sessionop.ForMinutes, "2": sessionop.ForStart, "3": sessionop.ForGood, "n": sessionop.TurnedDown}

// requests shows what waits. The one that is chosen stays so, whatever comes or goes meanwhile, and nothing is answered
// that isn't shown whole.
type requests struct {
	a       *attachment
	list    []asked
	chosen  uint32 // its number
	fault   string
	answers chan came
	hidden  bool // the chosen one is not shown whole
}

type asked struct {
	Asked
	pending bool
	came    []string // of the answer
	failed  bool
}

// came is what came of an answer.
type came struct {
	number uint32
	lines  []string
	err    error
}

func (a *attachment) requests() *requests {
	v := &requests{a: a, answers: a.came}
	v.look()
	if i := slices.IndexFunc(v.list, func(r asked) bool { return r.Became == "" }); i >= 0 {
		v.chosen = v.list[i].Number
	}
	return v
}

// look reads the list again. What was shown stays where it is.
func (v *requests) look() {
	now, err := v.a.o.Requests.List()
	v.fault = ""
	if err != nil {
		v.fault = err.Error()
	}
	for i := range v.list {
		r := &v.list[i]
		at := slices.IndexFunc(now, func(n Asked) bool { return n.Number == r.Number })
		switch {
		case at >= 0:
			r.Asked = now[at]
		case err == nil && r.Became == "":
			r.Became = "is no longer asked for"
		}
	}
	for _, n := range now {
		known := slices.ContainsFunc(v.list, func(r asked) bool { return r.Number == n.Number })
		if !known && n.Became == "" {
			v.list = append(v.list, asked{Asked: n})
		}
	}
	if v.at() < 0 && len(v.list) > 0 {
		v.chosen = v.list[0].Number
		if o := v.a.over; o != nil && o.view == view(v) {
			o.shown = nil // a key that was pressed before this was no answer to it
		}
	}
}

func (v *requests) at() int {
	return slices.IndexFunc(v.list, func(r asked) bool { return r.Number == v.chosen })
}

func (v *requests) waiting() (n int) {
	for _, r := range v.list {
		if r.Became == "" {
			n++
		}
	}
	return n
}

func (v *requests) press(key string) bool {
	at := v.at()
	if at < 0 {
		return true
	}
	r := &v.list[at]
	verdict, isAnswer := verdicts[key]
	switch {
	case key == "esc" || key == "q" || key == "enter" && r.Became != "":
		return true
	case key == "up" || key == "k":
		v.chosen = v.list[max(at-1, 0)].Number
	case key == "down" || key == "j":
		v.chosen = v.list[min(at+1, len(v.list)-1)].Number
	case isAnswer && r.Became == "" && !r.pending && !v.hidden && v.a.o.Requests.Answer != nil:
		v.answer(r, verdict)
	case r.Became != "" && !r.pending && v.waiting() == 0:
		return true
	}
	return false
}

// answer has a goroutine ask, which may take a while. There is one question under way for each request at most.
func (v *requests) answer(r *asked, verdict sessionop.Verdict) {
	r.pending, r.came, r.failed = true, nil, false
	about, a := r.Asked, v.a
	go func() {
		lines, err := a.o.Requests.Answer(about, verdict)
		a.came <- came{about.Number, lines, err}
		a.wake()
	}()
}

// take shows what came of an answer.
func (v *requests) take(c came) {
	i := slices.IndexFunc(v.list, func(r asked) bool { return r.Number == c.number })
	if i < 0 {
		return
	}
	r := &v.list[i]
	r.pending, r.came, r.failed = false, c.lines, c.err != nil
	if c.err != nil {
		r.came = []string{c.err.Error()}
	}
	v.look()
	if c.err == nil && r.Became == "" {
		r.Became = "answered"
	}
}

func (v *requests) answered([]byte) {}

func (v *requests) draw(columns, lines int) []row {
	head := line(inverse, " the agent asks for %s", text.Counted(v.waiting(), "grant", "grants"))
	if v.waiting() == 0 {
		head = line(inverse, " no request of the agent's waits")
	}
	rows := []row{head}
	if v.fault != "" {
		rows = append(rows, line("", " %s", v.fault))
	}
	at := v.at()
	if at < 0 {
		return append(append(rows, nil), keysOf(columns, "any key goes back")...)
	}
	keys := v.keys(columns, v.list[at])
	detail, whole := v.detail(columns, v.list[at])
	room := lines - len(rows) - len(keys)
	v.hidden = whole > room
	if v.hidden {
		return append(append(rows, line(strong, " the terminal is too small to show what is asked")), keysOf(columns, "q back")...)
	}
	detail = detail[:min(len(detail), room)]
	if table := v.table(columns, room-len(detail)-2, at); len(v.list) > 1 && len(table) > 1 {
		rows = append(append(rows, table...), nil)
	} else if room > len(detail)+1 {
		rows = append(rows, nil)
	}
	rows = append(rows, detail...)
	if len(rows)+len(keys) < lines {
		rows = append(rows, nil)
	}
	return append(rows, keys...)
}

// table is the list, or what of it is around the chosen one.
func (v *requests) table(columns, room, at int) []row {
	const number, from, age, mostTarget = 7, 20, 13, 92
	target := columns - number - age
	if columns >= 80 {
		target -= from
	}
	target = min(target, mostTarget)
	cells := func(style, no, what, who, since string) row {
		r := row{{no, number, style}, {gap(what, target), target, style}}
		if columns >= 80 {
			r = append(r, cell{gap(who, from), from, style})
		}
		return append(r, cell{since, age, style})
	}
	rows := []row{cells(faint, "    NO", "TARGET", "FROM", "AGE")}
	room = min(room-len(rows), len(v.list))
	if room < 1 {
		return nil
	}
	first := max(0, min(at-room/2, len(v.list)-room))
	for _, r := range v.list[first : first+room] {
		mark, style, since := "  ", "", text.Shortly(time.Since(r.Since).Round(time.Second))
		if r.Number == v.chosen {
			mark, style = " >", strong
		}
		if r.Became != "" {
			since, _, _ = strings.Cut(r.Became, " by ")
		}
		rows = append(rows, cells(style, fmt.Sprintf("%s%4d", mark, r.Number), r.Target, r.From, since))
	}
	return rows
}

// gap leaves room behind a text that fills its cell.
func gap(s string, width int) string { return text.Fit(tame(s), max(0, width-2)) }

// detail is all of a request, and what came of the answer. The target, which must be seen whole, is in its first rows.
func (v *requests) detail(columns int, r asked) (rows []row, whole int) {
	for _, l := range wrapped(tame(r.Target), "  ", columns) {
		rows = append(rows, line(strong, "%s", l))
	}
	whole = len(rows)
	add := func(style, s string) {
		rows = append(rows, words(style, s, "  ", columns)...)
	}
	if r.Reason != "" {
		add("", fmt.Sprintf("because %q", text.Clean(r.Reason)))
	}
	add(faint, fmt.Sprintf("request %d, %s ago, from %s", r.Number, text.Shortly(time.Since(r.Since).Round(time.Second)), r.From))
	switch {
	case r.pending:
		add("", "…")
	case len(r.came) > 0:
		for i, l := range r.came {
			style := ""
			if i == 0 {
				style = strong
			}
			add(style, l)
		}
	case r.Became != "":
		add("", r.Became)
	}
	return rows, whole
}

func (v *requests) keys(columns int, r asked) []row {
	var keys []string
	switch {
	case v.a.o.Requests.Answer == nil:
		return append(words(faint, v.a.o.Requests.Who, " ", columns), keysOf(columns, "q back")...)
	case r.Became == "":
		keys = []string{"1 allow for 10 minutes", "2 until agent-init ends", "3 for good", "n no"}
	case v.waiting() == 0:
		return keysOf(columns, "any key goes back")
	}
	if len(v.list) > 1 {
		keys = append(keys, "↑ ↓ others")
	}
	return keysOf(columns, append(keys, "q back")...)
}
