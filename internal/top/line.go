package top

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"

	"github.com/agent-init/agent-init/internal/text"
)

// style is how a piece of a line looks.
type style uint8

const (
	plain style = iota
	bold
	dim
	good
	bad
	warn
	bar      // the other way round: where one looks first
	selected // likewise
)

// span is a piece of a line. Its text is clean.
type span struct {
	text  string
	style style
}

// line is one line of a frame, as wide as the frame or less.
type line []span

// String is the text without its looks.
func (l line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return b.String()
}

func (l line) columns() (n int) {
	for _, s := range l {
		n += text.Columns(s.text)
	}
	return n
}

// clean is s with one character for each column or two, and nothing that a terminal could take for more: names, reasons
// and processes are chosen by the agent. Terminals differ about characters that join, so none does.
func clean(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return separate(s)
		}
	}
	return s
}

func separate(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	whole := displaywidth.StringGraphemes(s + " ") // with what follows: some join that
	for whole.Next() {
		r, n := utf8.DecodeRuneInString(whole.Value())
		if n < len(whole.Value()) || !alone(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	out := b.String()
	return out[:len(out)-1]
}

// alone says whether a character takes one column or two by itself, on every terminal and whatever is beside it. A half
// of a flag, a tone of skin and a vowel of Hangul have a width, and join what is beside them.
func alone(r rune) bool {
	if r >= ' ' && r <= '~' {
		return true
	}
	if r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) {
		return false
	}
	apart := 0
	for beside := displaywidth.StringGraphemes("?" + string(r) + string(r) + "?"); beside.Next(); {
		apart++
	}
	n := displaywidth.Rune(r)
	return apart == 4 && (n == 1 || n == 2)
}

const cutMark = "…"

// fit is s, clean, in just n columns: what is too long loses its end, or its start, which of a name says less.
func fit(s string, n int, start bool) string {
	s = clean(s)
	if wide := text.Columns(s); start && wide > n {
		if _, s = text.Cut(s, wide-n+1); text.Columns(s) >= n { // a wide one was at the cut
			_, s = text.Cut(s, 1)
		}
		s = cutMark + s
	}
	return text.Fit(s, n)
}

// right is s at the right of n columns.
func right(s string, n int) string {
	s = strings.TrimRight(fit(s, n, false), " ")
	return strings.Repeat(" ", max(0, n-text.Columns(s))) + s
}

// cut takes from a line what is beyond n columns, and fills it up to them.
func (l line) cut(n int) line {
	var out line
	for _, s := range l {
		if n <= 0 {
			break
		}
		wide := text.Columns(s.text)
		if wide > n {
			s.text, wide = fit(s.text, n, false), n
		}
		out, n = append(out, s), n-wide
	}
	if n > 0 {
		out = append(out, span{strings.Repeat(" ", n), plain})
	}
	return out
}

// inLines breaks a text between words, into lines of just that width.
func inLines(s string, width int, look style) (out []line) {
	width = max(width, 2) // the widest character has two
	for part := range strings.SplitSeq(text.Fold(clean(s), width, "  "), "\n") {
		for more := true; more; more = part != "" { // a word may be wider
			var head string
			head, part = text.Cut(part, width)
			out = append(out, line{{head, look}}.cut(width))
		}
	}
	return out
}
