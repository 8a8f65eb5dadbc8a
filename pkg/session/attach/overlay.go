package attach

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/internal/typed"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// view is something of the client's own on the terminal, in the place of the window.
type view interface {
	draw(columns, lines int) []row
	press(key string) (done bool)
	answered(b []byte) // by the server, if the view has asked for something
	look()             // at what may have changed
}

// overlay is what is shown over the window. Meanwhile nothing that the server sends reaches the terminal: it is drawn
// afresh when the overlay goes.
//
// A key counts from the moment in which the terminal has shown what it is an answer to. Until then, a terminal says
// perhaps what it was asked by a program, and a person types for the program. So the first picture ends with a question
// that nobody else can know the answer to: where the cursor is, which is put somewhere by chance. It is asked again when
// an answer to something else was cut, of which the rest would look like keys.
type overlay struct {
	view    view
	shown   []byte    // last
	place   string    // the answer that shows that the picture is there; empty: it has come
	late    time.Time // when none comes any more
	looking time.Time // when the view looks again
	pasting bool
	answer  []byte
}

const (
	placeTime = 500 * time.Millisecond // for a terminal to answer; some never do
	slowTime  = 10 * time.Second       // for one that does, and has much to draw before
	lookEvery = 500 * time.Millisecond
	maxAnswer = 32 << 20
)

// open shows a view, in the place of one that may be there.
func (a *attachment) open(v view) error {
	if a.over == nil && !a.o.Request.Plain {
		a.dirty = true
		if err := a.write(terminal.Over()); err != nil {
			return err
		}
	}
	if a.over == nil {
		a.send(frame.Seen, nil)
	}
	a.over = &overlay{view: v, looking: time.Now().Add(lookEvery)}
	return a.paint()
}

// shut takes the overlay away; the server is to draw what was there.
func (a *attachment) shut() error {
	if a.over == nil {
		return nil
	}
	a.over = nil
	a.sendSize()
	if a.o.Request.Plain {
		return nil
	}
	return a.write(terminal.Back())
}

func (a *attachment) paint() error {
	o, columns, lines := a.over, a.cols, a.rows
	if columns == 0 || lines == 0 {
		columns, lines = 80, 24
	}
	rows := o.view.draw(columns, lines)
	var picture []byte
	if a.o.Request.Plain {
		picture = spell(rows)
	} else {
		picture = paint(rows, columns, lines)
	}
	if bytes.Equal(picture, o.shown) {
		return nil
	}
	first := o.shown == nil
	o.shown = picture
	if first && !a.o.Request.Plain {
		picture = a.fence(picture, columns, lines)
	}
	return a.write(picture)
}

// fence ends a picture with the question whose answer shows that it is there.
func (a *attachment) fence(picture []byte, columns, lines int) []byte {
	y, x := min(2+rand.IntN(max(1, lines-1)), lines), 1+rand.IntN(columns)
	a.over.place, a.over.late = fmt.Sprintf("\x1b[%d;%dR", y, x), time.Now().Add(placeTime)
	if a.answers {
		a.over.late = time.Now().Add(slowTime)
	}
	return fmt.Appendf(picture, "\x1b[%d;%dH\x1b[6n", y, x)
}

// reopen shows the overlay on a terminal that something else has had meanwhile.
func (a *attachment) reopen() error {
	v := a.over.view
	a.over = nil
	return a.open(v)
}

// pressed gives the view what was typed: whole characters and sequences.
func (a *attachment) pressed(b []byte) error {
	for seq := range typed.Sequences(b) {
		o := a.over
		if o == nil {
			return nil // what comes behind the last key was for nobody
		}
		switch {
		case bytes.Equal(seq, pasteBegins):
			o.pasting = true
		case bytes.Equal(seq, pasteEnds):
			o.pasting = false
		case o.place != "" && string(seq) == o.place:
			o.place, a.answers = "", true
		case o.place != "" && typed.IsReport(seq): // to somebody else, and it will answer us as well
			o.late, a.answers = time.Now().Add(slowTime), true
		case o.pasting:
		case o.place != "" && time.Now().Before(o.late): // and so is what comes right behind it: a text that is pasted
			o.late = later(o.late, time.Now().Add(placeTime))
		case isC1(seq), !typed.Whole(seq) && len(seq) > 1: // an answer, of which what follows is a part
			a.answers = a.answers || typed.IsReport(seq)
			o.shown = nil
			return a.paint()
		default:
			key := nameOf(seq)
			if key == "" {
				continue
			}
			if o.view.press(key) {
				if err := a.shut(); err != nil {
					return err
				}
			}
		}
	}
	if a.over == nil {
		return nil
	}
	return a.paint()
}

// answered takes part of what the view has asked the server for.
func (a *attachment) answered(b []byte) error {
	o := a.over
	switch {
	case o == nil: // it has gone meanwhile
		return nil
	case len(b) > 0:
		if len(o.answer)+len(b) <= maxAnswer {
			o.answer = append(o.answer, b...)
		}
		return nil
	}
	o.view.answered(o.answer)
	o.answer = nil
	return a.paint()
}

// looks lets the view look at what may have changed, now and then.
func (a *attachment) looks() error {
	if a.over == nil || !past(a.over.looking) || a.o.Request.Plain { // where each picture would stay
		return nil
	}
	a.over.looking = time.Now().Add(lookEvery)
	a.over.view.look()
	return a.paint()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// isC1 says whether a character begins a sequence for those who read C1 (ECMA-48, 5.3), in UTF-8 or as a byte.
func isC1(seq []byte) bool {
	return len(seq) == 1 && seq[0] >= 0x80 && seq[0] < 0xa0 || len(seq) == 2 && seq[0] == 0xc2 && seq[1] < 0xa0
}

// nameOf is what a key is called: what it types, or a word; empty if it is none.
func nameOf(seq []byte) string {
	key := decodeKey(seq)
	switch {
	case key.released || typed.IsReport(seq) || typed.IsMouse(seq):
		return ""
	case key.code == 27, string(seq) == "\x1b", string(seq) == "\x03":
		return "esc"
	case key.code == 13, string(seq) == "\r", string(seq) == "\n":
		return "enter"
	case key.code == 127, string(seq) == "\x7f", string(seq) == "\b":
		return "backspace"
	case key.code == 9, string(seq) == "\t":
		return "down"
	case key.character() != 0:
		return string(rune(key.character()))
	case seq[0] > ' ' && utf8.Valid(seq) || string(seq) == " ":
		return string(seq)
	}
	if len(seq) < 3 || seq[0] != 0x1b || seq[1] != '[' && seq[1] != 'O' {
		return ""
	}
	if final := seq[len(seq)-1]; final != '~' {
		return map[byte]string{'A': "up", 'B': "down", 'H': "home", 'F': "end"}[final]
	}
	number, _, _ := strings.Cut(string(seq[2:len(seq)-1]), ";")
	return map[string]string{"1": "home", "7": "home", "4": "end", "8": "end", "5": "pgup", "6": "pgdn"}[number]
}
