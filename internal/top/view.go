package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/text"
)

type request = grant.Grant

// View is how a person looks at it: what is selected, sorted and filtered. It is pure as the Model is.
type View struct {
	focus     paneName
	turned    bool // the person has chosen the list
	cursors   [panes]cursor
	order     order
	reverse   bool
	filter    string
	typing    bool   // the filter
	pasting   bool   // what comes is no key
	frozen    *Shown // what is shown in place of what is
	over      *overlay
	question  *question
	said      string // what became of the last key
	saidIt    style
	recording string // the file
	width     int    // as it was drawn last
	height    int
}

// overlay is a text over the lists.
type overlay struct {
	title string
	text  []string
	from  int
}

// Frame draws what is shown on so many columns and rows.
func (v *View) Frame(s Shown, width, height int) []line {
	if v.frozen != nil {
		s = *v.frozen
	}
	width, height = max(width, 20), max(height, 5)
	v.width, v.height = width, height
	foot := v.foot(&s, width)
	foot = foot[:min(len(foot), height-2)]
	out := v.top(&s, width, height)
	out = out[:min(len(out), max(1, (height-len(foot))/2))]
	if room := height - len(out) - len(foot); v.over != nil {
		out = append(out, v.over.lines(width, room)...)
	} else {
		out = append(out, v.lists(&s, width, room)...)
	}
	for len(out) < height-len(foot) {
		out = append(out, line{}.cut(width))
	}
	return append(out[:height-len(foot)], foot...)
}

// focused is the list that has the keys: the first that has something, as long as nobody has chosen one. Who looks for the
// first time presses a, and means what is seen.
func (v *View) focused(s *Shown) pane {
	p := v.of(v.focus, s)
	if p.rows > 0 || v.turned || v.question != nil {
		return p
	}
	for _, name := range []paneName{requests, refused, asked} {
		if other := v.of(name, s); other.rows > 0 {
			v.focus = name
			return other
		}
	}
	return p
}

// top says how agent-init does.
func (v *View) top(s *Shown, width, height int) (out []line) {
	mode := ""
	if s.Status != nil {
		mode = ", " + s.Status.Mode
		if phase := s.Status.Policy.Phase; phase != "" {
			mode += ", phase " + phase
		}
	}
	health, look := "healthy", good
	if !s.Healthy {
		health, look = "NOT HEALTHY", bad
	}
	title := line{{" agent-init top ", bar}, {" ", plain}, {clean(s.State + mode), bold}, {"  ", plain}, {health, look}, {"  " + s.Time.Format(time.TimeOnly), plain}}
	if v.frozen != nil {
		title = append(title, span{"  frozen", warn})
	}
	if v.recording != "" {
		title = append(title, span{"  recorded", warn})
	}
	if !s.Operator {
		title = append(title, span{"  read-only", dim})
	}
	out = append(out, title.cut(width))
	for _, why := range s.Why {
		out = append(out, inLines("! "+why, width, bad)...)
	}
	words := together(summary(s), width)
	for _, l := range words[:min(len(words), max(1, height/10))] {
		out = append(out, line{{l, plain}}.cut(width))
	}
	for _, what := range s.Unseen {
		out = append(out, inLines(what, width, dim)...)
	}
	return out
}

// together puts what belongs together on one line, as far as there is room.
func together(words []string, width int) (lines []string) {
	const between = "   "
	for _, w := range words {
		if last := len(lines) - 1; last >= 0 && text.Columns(lines[last])+len(between)+text.Columns(w) <= width {
			lines[last] += between + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

// summary is what there is to say in a word or two.
func summary(s *Shown) (words []string) {
	if st := s.Status; st != nil {
		words = append(words, fmt.Sprintf("open %s, %s", text.Counted(st.Leases.Names, "name", "names"), text.Counted(st.Leases.Elements, "element", "elements")),
			fmt.Sprintf("granted %d, denied %d", st.Grants.Allowed, st.Grants.Denied),
			fmt.Sprintf("names %d asked, %d refused", st.Guard.Stats.Queries, st.Guard.Stats.Denied),
			fmt.Sprintf("gate %s, %d refused", text.Counted(st.Guard.Stats.Relays, "connection", "connections"), st.Guard.Stats.Refused))
		for _, r := range st.Broker.Routes {
			if r.Present {
				words = append(words, fmt.Sprintf("route %s %s, %d refused", clean(r.Name), text.Counted(r.Requests, "request", "requests"), r.Refusals))
			}
		}
		if st.Session.Name != "" {
			words = append(words, fmt.Sprintf("session %s %s, %d attached", clean(st.Session.Name), text.Counted(st.Session.Windows, "window", "windows"), st.Session.Attached))
		}
	}
	if len(s.Parts) > 0 {
		var parts []string
		for _, p := range s.Parts {
			parts = append(parts, clean(p.Name)+" "+size(p.Bytes))
		}
		words = append(words, "memory "+strings.Join(parts, ", "))
	}
	return words
}

// lists draws the lists. The one that has the keys gets what room there is.
func (v *View) lists(s *Shown, width, height int) (out []line) {
	p := v.focused(s)
	others := v.others(s)
	least := max(4, height/2) // lines of the list with the keys
	if width >= 120 {
		return v.beside(s, p, others, width, height)
	}
	var small [][]line
	room := height - least
	for _, name := range others {
		p := v.of(name, s)
		rows := min(p.rows, 4) + 2
		if p.rows == 0 {
			rows = 1
		}
		if rows = min(rows, room); rows < 2 && p.rows > 0 || rows < 1 {
			continue
		}
		drawn := p.lines(&v.cursors[name], false, width, rows)
		if p.rows == 0 {
			drawn = []line{line{{" " + p.title + " ", bold}, {fit(p.none, 30, false), dim}}.cut(width)}
		}
		room -= len(drawn)
		small = append(small, drawn)
	}
	out = p.lines(&v.cursors[v.focus], true, width, least+room)
	for len(out) < least+room {
		out = append(out, line{}.cut(width))
	}
	for _, lines := range small {
		out = append(out, lines...)
	}
	return out
}

// others are the lists without the keys, what waits for a person first.
func (v *View) others(s *Shown) (out []paneName) {
	for _, name := range []paneName{requests, connections, refused, asked, ending} {
		if name != v.focus && (name != requests || len(s.Requests) > 0) {
			out = append(out, name)
		}
	}
	return out
}

// beside puts the lists without the keys in two columns below the one with them.
func (v *View) beside(s *Shown, p pane, others []paneName, width, height int) []line {
	below := max(0, min(height/2, 2*7))
	rowsOf := (len(others) + 1) / 2
	each := below / max(1, rowsOf)
	if each < 3 {
		each, rowsOf = 0, 0
	}
	room := height - each*rowsOf
	out := p.lines(&v.cursors[v.focus], true, width, room)
	for len(out) < room {
		out = append(out, line{}.cut(width))
	}
	const between = "  "
	half := (width - len(between)) / 2
	for i := 0; i < rowsOf; i++ {
		columns := make([][]line, 2)
		for j := range columns {
			if at := 2*i + j; at < len(others) {
				name := others[at]
				list := v.of(name, s)
				columns[j] = list.lines(&v.cursors[name], false, half, each)
			}
		}
		for y := range each {
			var l line
			for j, c := range columns {
				if j > 0 {
					l = append(l, span{between, plain})
				}
				if y < len(c) {
					l = append(l, c[y].cut(half)...)
				} else {
					l = append(l, line{}.cut(half)...)
				}
			}
			out = append(out, l.cut(width))
		}
	}
	return out
}

func (o *overlay) lines(width, height int) []line {
	out := []line{line{{" " + clean(o.title) + " ", bar}, {"  any key goes back, arrows scroll", dim}}.cut(width)}
	var all []line
	for _, t := range o.text {
		all = append(all, inLines(t, width, plain)...)
	}
	o.from = max(0, min(o.from, len(all)-(height-1)))
	return append(out, all[o.from:min(len(all), o.from+max(0, height-1))]...)
}

// asking is the question, whole, and its answers.
func (v *View) asking(width int) []line {
	return append(inLines(v.question.text, width, bold), inLines(v.question.answers(), width, warn)...)
}

// foot is a question, what became of a key, or the keys.
func (v *View) foot(s *Shown, width int) []line {
	switch {
	case v.question != nil:
		v.question.seen = true
		return v.asking(width)
	case v.typing:
		return []line{line{{"filter: ", bold}, {fit(v.filter, max(1, width-9), true), plain}}.cut(width)}
	case v.said != "":
		return inLines(v.said, width, v.saidIt)
	}
	decide := ""
	if s.Operator {
		decide = "a allow  d deny  "
	}
	keys := "Tab list  " + decide + "e explain  / filter  s sort  f freeze  R record  ? help  q quit"
	if width < text.Columns(keys) {
		keys = strings.ReplaceAll("Tab  "+decide+"e explain  / filter  s sort  f freeze  ? q", "  ", " ")
	}
	if v.filter != "" {
		keys = "filtered by " + fmt.Sprintf("%q", clean(v.filter)) + ", Esc takes it away  " + keys
	}
	return []line{line{{fit(keys, width, false), dim}}}
}

// whole draws all lists below each other, with all their rows, for who reads no screen.
func (v *View) whole(s *Shown, width int) []line {
	out := v.top(s, width, 100)
	for _, name := range []paneName{connections, requests, refused, asked, ending} {
		p := v.of(name, s)
		out = append(out, nil)
		out = append(out, p.lines(&cursor{}, false, width, p.rows+2)...)
	}
	return out
}

// trimmed is a line without looks, and without the blanks at its end.
func trimmed(l line) string { return strings.TrimRight(l.String(), " ") }
