package terminal

import (
	"fmt"
	"maps"
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
	titles
	stack    []titles
	cwd      string            // the URI of OSC 7
	shape    int               // of the cursor, DECSCUSR
	colors   map[string]string // by what sets them: "4;0" to "4;255" and "10" to "19"
	progress string            // of OSC 9;4, without its number; "" where there is none
	touched  Traces
}

type titles struct{ title, icon string }

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
	case number == 4 || number >= 10 && number <= 19:
		eachColor(number, text, t.color)
	case number == 104 && text == "":
		maps.DeleteFunc(d.colors, func(name, _ string) bool { return strings.HasPrefix(name, "4;") })
	case number == 104:
		for _, n := range strings.Split(text, ";") {
			if i, err := strconv.Atoi(n); err == nil {
				delete(d.colors, fmt.Sprintf("4;%d", i))
			}
		}
	case number >= 110 && number <= 119:
		delete(d.colors, strconv.Itoa(number-100))
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

// eachColor says each colour of OSC 4 or 10 to 19: the number of the command that sets
// it alone, what comes before the colour there, and the colour, or ? to ask.
func eachColor(number int, text string, do func(number int, name, spec string)) {
	fields := strings.Split(text, ";")
	for i, spec := range fields {
		if number != 4 {
			do(number+i, strconv.Itoa(number+i), spec)
		} else if i%2 == 1 {
			do(number, "4;"+fields[i-1], spec)
		}
	}
}

func (t *Terminal) color(number int, name, spec string) {
	if spec == "?" {
		t.answerColor(name)
		return
	}
	t.desc.colors[name] = spec
	t.desc.touched.colors[number] = true
}

// window is CSI t: of it, the titles' stack and the size in cells. The title can't be read.
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
			d.stack = append(d.stack, d.titles)
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
