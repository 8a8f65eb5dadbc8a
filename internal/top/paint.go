package top

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
)

// painter draws frames on a terminal, by what each line was before. All that it sends is here; what lines hold is clean.
type painter struct {
	out    io.Writer
	colour bool
	was    []string
}

// What a terminal is told before and after. Nothing wraps: what a terminal takes for wider than we do stays in its line.
// What is pasted is marked (xterm's bracketed paste): the keys of a text would decide.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[2J"
	leave = "\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[?1049l"
)

var coloured = [...]string{plain: "", bold: "1", dim: "2", good: "32", bad: "31", warn: "33", bar: "7;1", selected: "7"}

var uncoloured = [...]string{plain: "", bold: "1", dim: "", good: "", bad: "1", warn: "1", bar: "7;1", selected: "7"}

// begin takes the terminal over.
func (p *painter) begin() error { return p.send(enter) }

// end gives it back.
func (p *painter) end() error { return p.send(leave) }

// forget has the next frame drawn as a whole: nobody knows what a terminal shows that has another size.
func (p *painter) forget() { p.was = nil }

func (p *painter) paint(frame []line) error {
	var b strings.Builder
	if p.was == nil {
		b.WriteString("\x1b[0m\x1b[2J")
	}
	now := make([]string, len(frame))
	for y, l := range frame {
		now[y] = p.drawn(l)
		if y >= len(p.was) || p.was[y] != now[y] {
			fmt.Fprintf(&b, "\x1b[%d;1H\x1b[2K%s", y+1, now[y])
		}
	}
	p.was = now
	return p.send(b.String())
}

func (p *painter) drawn(l line) string {
	looks := &uncoloured
	if p.colour {
		looks = &coloured
	}
	var b strings.Builder
	for _, s := range l {
		b.WriteString(text.Painted(s.text, looks[s.style], true))
	}
	return b.String()
}

func (p *painter) send(s string) error {
	if s == "" {
		return nil
	}
	n, err := io.WriteString(p.out, s)
	if n < len(s) {
		return cmp.Or(err, io.ErrShortWrite)
	}
	return nil
}
