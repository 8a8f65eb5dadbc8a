package terminal

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
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
	touched     Traces
}

type titles struct{ title, icon string }

// osc does what an operating system command says.
func (t *Terminal) osc(data []byte) {
	number, text, ok := command(data)
	if !ok {
		return
	}
	d := &t.desc
	if number == workdir {
		if len(text) <= maxLink {
			d.cwd = text
		}
		return
	}
	if text, _, ok = permitCommand(number, text); !ok {
		return
	}
	switch {
	case number == 0:
		d.title, d.icon, d.touched.title = text, text, true
	case number == 1:
		d.icon, d.touched.title = text, true
	case number == 2:
		d.title, d.touched.title = text, true
	case number == 4:
		t.paletteColors(text)
	case number == 8:
		if t.cur.pen.Link, t.penDirty = text, true; text == ";" { // which ends it
			t.cur.pen.Link = ""
		}
	case number == 9 && strings.HasPrefix(text, "4;"):
		if d.progress = text[2:]; text[2] == '0' { // which takes it away
			d.progress = ""
		} else {
			d.touched.progress = true
		}
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

// readProgress reads state;value.
func readProgress(text string) (string, bool) {
	state, value, _ := strings.Cut(text, ";")
	s, err := strconv.Atoi(state)
	v, err2 := strconv.Atoi(value)
	if err != nil || s < 0 || s > 4 || value != "" && (err2 != nil || v < 0 || v > 100) {
		return "", false
	}
	if value == "" {
		return strconv.Itoa(s), true
	}
	return fmt.Sprintf("%d;%d", s, v), true
}

// paletteColors is OSC 4: pairs of a number and a colour, or ? to ask.
func (t *Terminal) paletteColors(text string) {
	fields := strings.Split(text, ";")
	for i := 0; i+1 < len(fields); i += 2 {
		n, _ := strconv.Atoi(fields[i])
		spec := fields[i+1]
		if spec == "?" {
			t.answerColor("4;"+fields[i], t.desc.palette[n], nil)
			continue
		}
		if t.desc.palette == nil {
			t.desc.palette = map[int]string{}
		}
		t.desc.palette[n] = spec
		t.desc.touched.palette = true
	}
}

// dynamicColors is OSC 10…19: colours from this number on, or ? to ask.
func (t *Terminal) dynamicColors(number int, text string) {
	for _, spec := range strings.Split(text, ";") {
		if number > 19 {
			return
		}
		if d := &t.desc; spec == "?" {
			t.answerColor(strconv.Itoa(number), d.dynamic[number-10], t.answers.color(number))
		} else {
			d.dynamic[number-10] = spec
			d.touched.dynamic[number-10] = true
		}
		number++
	}
}

// cwdPath returns the path of a file URI.
func cwdPath(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" && u.Scheme != "kitty-shell-cwd" {
		return ""
	}
	return clean(u.Path, maxLink)
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
