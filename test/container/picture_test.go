package container

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// same waits until panes look as the first does, and know the same of their terminal.
func (s *screens) same(what string, moving, live *regexp.Regexp, as int, panes ...int) {
	s.Helper()
	for _, p := range panes {
		if difference := s.differ(patience, moving, live, as, p); difference != "" {
			s.Fatalf("%s: %s\n%s\n--- and in the session\n%s", what, difference, s.screen(as), s.screen(p))
		}
	}
}

// differ waits until two panes look the same, or says how they don't.
func (s *screens) differ(limit time.Duration, moving, live *regexp.Regexp, one, other int) (difference string) {
	s.Helper()
	comesWithin(limit, func() bool {
		want, got := s.picture(one, moving, live), s.picture(other, moving, live)
		difference = want.differs(got)
		return difference == ""
	})
	return difference
}

// picture is what a pane shows, cell by cell.
type picture struct {
	cells        [][]string
	state, title string
}

const paneState = "cursor #{cursor_x},#{cursor_y} visible=#{cursor_flag} alternate=#{alternate_on} insert=#{insert_flag} app-cursor=#{keypad_cursor_flag} " +
	"app-keypad=#{keypad_flag} wrap=#{wrap_flag} mouse=#{mouse_standard_flag}#{mouse_button_flag}#{mouse_all_flag}#{mouse_sgr_flag}"

func (s *screens) picture(n int, moving, live *regexp.Regexp) picture {
	s.Helper()
	ask := func(format string) string {
		return strings.TrimSpace(s.tmux("display-message", "-p", "-t", pane(n), format))
	}
	p := picture{state: ask(paneState), title: ask("#{pane_title}")}
	look, begins := style{}, 0
	for y, line := range strings.Split(strings.TrimSuffix(s.tmux("capture-pane", "-e", "-p", "-N", "-t", pane(n)), "\n"), "\n") {
		text := sgr.ReplaceAllString(line, "")
		if live != nil && live.MatchString(text) {
			begins = y
		}
		if moving != nil && moving.MatchString(text) {
			p.cells = append(p.cells, []string{moving.ReplaceAllString(text, "…")})
			look.read(line)
			continue
		}
		p.cells = append(p.cells, look.read(line))
	}
	if live != nil {
		p.cells = p.cells[begins:]
		last := func() []string { return p.cells[len(p.cells)-1] }
		for len(p.cells) > 0 && !slices.ContainsFunc(last(), func(c string) bool { return c != blank }) {
			p.cells = p.cells[:len(p.cells)-1]
		}
		// The cursor by its place among these rows.
		var x, y int
		fmt.Sscanf(p.state, "cursor %d,%d", &x, &y)
		_, rest, _ := strings.Cut(p.state, " visible")
		p.state = fmt.Sprintf("cursor %d,%d below visible%s", x, y-begins, rest)
	}
	return p
}

var sgr = regexp.MustCompile("\x1b\\[([0-9;:]*)m")

func (p picture) differs(q picture) string {
	if p.state != q.state {
		return fmt.Sprintf("%s\nis in the session %s", p.state, q.state)
	}
	if p.title != q.title && !graphics(p.title) && !graphics(q.title) {
		return fmt.Sprintf("the title %q is %q in the session", p.title, q.title)
	}
	if len(p.cells) != len(q.cells) {
		return fmt.Sprintf("%d rows are %d in the session", len(p.cells), len(q.cells))
	}
	for y := range p.cells {
		for x := range max(len(p.cells[y]), len(q.cells[y])) {
			want, got := blank, blank
			if x < len(p.cells[y]) {
				want = p.cells[y][x]
			}
			if x < len(q.cells[y]) {
				got = q.cells[y][x]
			}
			if want != got {
				return fmt.Sprintf("row %d, character %d: %s is %s in the session", y, x, want, got)
			}
		}
	}
	return ""
}

// graphics tells kitty's question for images, which tmux takes for a title and other
// terminals, and the model, do not.
func graphics(title string) bool { return strings.HasPrefix(title, "Gi=") }

// style is what a run of SGR sequences has set: of each kind the sequence in force.
type style map[string]string

const blank = "\" \" map[]"

// read returns a line's characters, each with its style.
func (s style) read(line string) (cells []string) {
	for line != "" {
		if at := sgr.FindStringSubmatchIndex(line); at != nil && at[0] == 0 {
			s.apply(line[at[2]:at[3]])
			line = line[at[1]:]
			continue
		}
		if line[0] == 0x1b || line[0] == 0x0e || line[0] == 0x0f { // character sets
			line = line[1:]
			continue
		}
		char := []rune(line)[0]
		line = line[len(string(char)):]
		cells = append(cells, fmt.Sprintf("%q %v", string(char), map[string]string(s)))
	}
	return cells
}

func (s style) apply(codes string) {
	f := strings.Split(codes, ";")
	for i := 0; i < len(f); i++ {
		n := f[i]
		switch {
		case n == "" || n == "0":
			clear(s)
		case n == "38" || n == "48" || n == "58":
			last := i + 2
			if i+1 < len(f) && f[i+1] == "2" {
				last = i + 4
			}
			last = min(last, len(f)-1)
			s[n] = strings.Join(f[i:last+1], ";")
			i = last
		case len(n) == 2 && n[0] == '3' || len(n) == 2 && n[0] == '9':
			s["38"] = n
		case len(n) == 2 && n[0] == '4' || len(n) == 3:
			s["48"] = n
		default:
			s[n] = "on"
		}
		for _, kind := range []string{"38", "48"} {
			if s[kind] == "39" || s[kind] == "49" {
				delete(s, kind)
			}
		}
	}
}
