package attach

import (
	"fmt"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
)

// scroll shows what the window has shown: its scrollback, and the screen at the time.
type scroll struct {
	a       *attachment
	loaded  bool
	text    []string // lines as the window had them
	rows    []place  // as they are shown
	columns int      // that rows are for
	lines   int
	top     int // first row that is shown
	typing  bool
	typed   string // what is searched for, as far as it is typed
	wanted  string
	found   int // the line; -1: none
	said    string
}

// place is a row: a part of a line.
type place struct {
	line int
	text string
}

func (a *attachment) scroll() *scroll {
	a.send(frame.Ask, []byte{frame.AskHistory})
	return &scroll{a: a, found: -1}
}

func (s *scroll) answered(b []byte) {
	s.loaded = true
	if all := strings.TrimRight(string(b), "\n"); all != "" {
		s.text = strings.Split(all, "\n")
	}
	s.rows, s.columns = nil, 0
}

func (s *scroll) look() {}

// fold parts the lines for a width, and stays at the line that is on top. The first time it shows the end.
func (s *scroll) fold(columns, lines int) {
	first := s.columns == 0
	if s.columns != columns {
		at := -1
		if s.top < len(s.rows) {
			at = s.rows[s.top].line
		}
		s.rows, s.columns = s.rows[:0], columns
		for i, l := range s.text {
			for {
				var head string
				head, l = text.Cut(l, columns)
				s.rows = append(s.rows, place{i, head})
				if l == "" {
					break
				}
			}
		}
		s.goTo(at)
	}
	s.lines = max(1, lines)
	if first {
		s.top = len(s.rows)
	}
	s.top = max(0, min(s.top, len(s.rows)-s.lines))
}

func (s *scroll) goTo(line int) {
	for i, r := range s.rows {
		if r.line >= line {
			s.top = i
			return
		}
	}
}

func (s *scroll) draw(columns, lines int) []row {
	if !s.loaded {
		return []row{line(faint, " reading what the window has shown…")}
	}
	s.fold(columns, lines-1)
	var rows []row
	for _, p := range s.rows[s.top:min(len(s.rows), s.top+s.lines)] {
		style := ""
		if p.line == s.found {
			style = inverse
		}
		rows = append(rows, row{{text: p.text, style: style}})
	}
	for len(rows) < s.lines {
		rows = append(rows, nil)
	}
	return append(rows, s.status(columns))
}

func (s *scroll) status(columns int) row {
	if s.typing {
		return line("", "/%s▏", s.typed)
	}
	where := fmt.Sprintf(" %d-%d of %d ", min(s.top+1, len(s.rows)), min(s.top+s.lines, len(s.rows)), len(s.rows))
	keys := " PgUp PgDn ↑ ↓ g G move  / search  n N next, before  q back"
	if s.said != "" {
		keys = " " + s.said
	}
	return row{{keys, max(1, columns-text.Columns(where)), inverse}, {where, 0, inverse}}
}

func (s *scroll) press(key string) (done bool) {
	s.said = ""
	if s.typing {
		s.search(key)
		return false
	}
	page := max(1, s.lines-1)
	switch key {
	case "q", "esc":
		return true
	case "up", "k":
		s.top--
	case "down", "j", "enter":
		s.top++
	case "pgup", "b":
		s.top -= page
	case "pgdn", " ":
		s.top += page
	case "home", "g":
		s.top = 0
	case "end", "G":
		s.top = len(s.rows)
	case "/":
		s.typing, s.typed = true, ""
	case "n":
		s.find(-1)
	case "N":
		s.find(1)
	}
	s.top = max(0, min(s.top, len(s.rows)-s.lines))
	return false
}

const maxSearch = 200 // bytes

// search takes a key while the words to search for are typed.
func (s *scroll) search(key string) {
	switch {
	case key == "esc":
		s.typing = false
	case key == "enter":
		if s.typing = false; s.typed != "" {
			s.wanted, s.found = s.typed, -1
		}
		s.find(-1)
	case key == "backspace":
		if runes := []rune(s.typed); len(runes) > 0 {
			s.typed = string(runes[:len(runes)-1])
		}
	case len([]rune(key)) == 1 && len(s.typed)+len(key) <= maxSearch:
		s.typed += key
	}
}

// find goes to the next line that has what is searched for: upwards, where the past is, with a step of -1. Words without
// capitals match any.
func (s *scroll) find(step int) {
	if s.wanted == "" || len(s.text) == 0 {
		return
	}
	from := s.found
	if from < 0 && len(s.rows) > 0 { // from what is shown
		from = s.rows[min(s.top+s.lines, len(s.rows))-1].line
		if step < 0 {
			from++
		}
	}
	same := strings.ToLower(s.wanted) == s.wanted
	for i := from + step; i >= 0 && i < len(s.text); i += step {
		l := s.text[i]
		if same {
			l = strings.ToLower(l)
		}
		if strings.Contains(l, s.wanted) {
			s.found = i
			s.goTo(i)
			s.top -= s.lines / 2
			return
		}
	}
	s.said = fmt.Sprintf("no further %q", s.wanted)
}
