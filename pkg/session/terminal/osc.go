package terminal

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on what is remembered of operating system commands.
const (
	maxTitle      = 1024 // bytes
	maxTitleStack = 10
	maxLink       = 2083 + 256 // bytes of a URI, and of its parameters
)

// descriptions are what programs said about the window.
type descriptions struct {
	title, icon string
	stack       []titles
	cwd         string // the URI of OSC 7
	shape       int    // of the cursor, DECSCUSR
	palette     map[int]string
	dynamic     [10]string // OSC 10…19: foreground, background, cursor…
	progress    string     // of OSC 9;4, without its number; "" where there is none
	touched     touched
}

type titles struct{ title, icon string }

// touched says what was ever changed: what Reset has to undo on any client.
type touched struct {
	palette, title, progress bool
	dynamic                  [10]bool
}

// osc does what an operating system command says.
func (t *Terminal) osc(data []byte) {
	name, rest, _ := bytes.Cut(data, []byte{';'})
	number, err := strconv.Atoi(string(name))
	if err != nil {
		return
	}
	d := &t.desc
	text := string(rest)
	switch {
	case number == 0:
		d.title, d.icon, d.touched.title = clean(text), clean(text), true
	case number == 1:
		d.icon, d.touched.title = clean(text), true
	case number == 2:
		d.title, d.touched.title = clean(text), true
	case number == 4:
		t.paletteColors(text)
	case number == 7:
		if printable(text) && len(text) <= maxLink {
			d.cwd = text
		}
	case number == 8:
		t.link(text)
	case number == 9 && strings.HasPrefix(text, "4;"):
		t.progress(text[2:])
	case number >= 10 && number <= 19:
		t.dynamicColors(number, text)
	case number == 104:
		if text == "" {
			d.palette = nil
		}
		for _, n := range strings.Split(text, ";") {
			if i, err := strconv.Atoi(n); err == nil {
				delete(d.palette, i)
			}
		}
	case number >= 110 && number <= 119:
		d.dynamic[number-110] = ""
	}
}

// link begins or ends a hyperlink: parameters;URI.
func (t *Terminal) link(text string) {
	_, uri, ok := strings.Cut(text, ";")
	if !ok {
		return
	}
	if uri == "" || !printable(text) || len(text) > maxLink {
		text = ""
	}
	t.cur.pen.Link = text
	t.penDirty = true
}

// progress is OSC 9;4: state;value. State 0 takes it away.
func (t *Terminal) progress(text string) {
	state, value, _ := strings.Cut(text, ";")
	s, err := strconv.Atoi(state)
	v, err2 := strconv.Atoi(value)
	if err != nil || s < 0 || s > 4 || value != "" && (err2 != nil || v < 0 || v > 100) {
		return
	}
	t.desc.progress = ""
	if s > 0 {
		t.desc.progress = fmt.Sprintf("%d;%d", s, v)
		t.desc.touched.progress = true
	}
}

// paletteColors is OSC 4: pairs of a number and a colour, or ? to ask.
func (t *Terminal) paletteColors(text string) {
	fields := strings.Split(text, ";")
	for i := 0; i+1 < len(fields); i += 2 {
		n, err := strconv.Atoi(fields[i])
		switch spec := fields[i+1]; {
		case err != nil || n < 0 || n > 255:
		case spec == "?":
			t.answerColor("4;"+strconv.Itoa(n), t.desc.palette[n], nil)
		case isColor(spec):
			if t.desc.palette == nil {
				t.desc.palette = map[int]string{}
			}
			t.desc.palette[n] = spec
			t.desc.touched.palette = true
		}
	}
}

// dynamicColors is OSC 10…19: colours from this number on, or ? to ask.
func (t *Terminal) dynamicColors(number int, text string) {
	for _, spec := range strings.Split(text, ";") {
		if number > 19 {
			return
		}
		switch d := &t.desc; {
		case spec == "?":
			t.answerColor(strconv.Itoa(number), d.dynamic[number-10], t.answers.color(number))
		case isColor(spec):
			d.dynamic[number-10] = spec
			d.touched.dynamic[number-10] = true
		}
		number++
	}
}

// isColor tells names and specifications of colours from anything else; it does not
// know all names.
func isColor(spec string) bool {
	if spec == "" || len(spec) > 40 {
		return false
	}
	for _, b := range []byte(spec) {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("#:/. ", b) >= 0) {
			return false
		}
	}
	return true
}

// clean makes a title of what a program sent: no control characters, valid, bounded.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	for len(s) > maxTitle {
		_, n := utf8.DecodeLastRuneInString(s[:maxTitle+1])
		s = s[:maxTitle+1-n]
	}
	return s
}

// printable reports whether s can be sent again as it is.
func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// cwdPath returns the path of a file URI.
func cwdPath(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" && u.Scheme != "kitty-shell-cwd" {
		return ""
	}
	return clean(u.Path)
}

// window is CSI t: of it, the titles' stack and the size in cells. Programs can't
// read the title, and don't move the window.
func (t *Terminal) window(p *params) {
	d := &t.desc
	what := p.get(1, 0)
	switch p.get(0, 0) {
	case 18:
		t.answer("\x1b[8;%d;%dt", t.rows, t.cols)
	case 19:
		t.answer("\x1b[9;%d;%dt", t.rows, t.cols)
	case 22:
		if len(d.stack) < maxTitleStack {
			d.stack = append(d.stack, titles{d.title, d.icon})
		}
	case 23:
		if n := len(d.stack) - 1; n >= 0 {
			if what != 1 {
				d.title = d.stack[n].title
			}
			if what != 2 {
				d.icon = d.stack[n].icon
			}
			d.stack = d.stack[:n]
		}
	}
}
