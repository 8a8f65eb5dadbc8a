package terminal

import (
	"bytes"
	"slices"
	"strings"
)

// What a person's terminal may be told, by list. The screen model does no more than that either. Sources: XTerm Control
// Sequences (invisible-island.net/xterm/ctlseqs), sw.kovidgoyal.net/kitty (protocol extensions, modes.h),
// foot-ctlseqs(7), iterm2.com/documentation-escape-codes.html and VT100Terminal.m, Windows Terminal's
// DispatchTypes.hpp.

// permitC0: BEL, BS, HT, LF, VT, FF, CR, SO, SI and DEL. Not ENQ, which terminals
// answer with a text of their owner's; the others mean nothing.
func permitC0(b byte) bool { return b >= 0x07 && b <= 0x0f || b == 0x7f }

func (s *scanner) control(b byte) token {
	if s.b = b; permitC0(b) {
		return tokControl
	}
	return tokNothing
}

// isC1 reports whether a character is a C1 control, which some terminals act on.
func isC1(r rune) bool { return r >= 0x80 && r < 0xa0 }

// permitEscape: no other coding system (ESC %, after which the second byte of a
// character can be a C1 control), no C1 answers (ESC SP G), no DECID.
func (s *scanner) permitEscape() bool {
	switch s.inter {
	case 0:
		return escapes[s.b] != nil
	case '(', ')', '*', '+':
		if s.b != '0' && s.b != 'A' {
			s.b = 'B' // as the model has it
		}
		return true
	case '#':
		return s.b == '8'
	}
	return false
}

// sequence is a control sequence that may pass, and what it does to the model.
type sequence struct {
	may func(s *scanner) (asks, ok bool) // which of these, whether it asks something; leaves in s what may pass. nil: all
	do  func(t *Terminal, p *params)     // nil: nothing
}

// sequences are by private byte, intermediate byte and final byte. Not on the list, of what terminals know: printing
// (i), the window (t), reports of titles (t), macros and the contents of the screen (*z, *y), locators ('z), VT levels
// and C1 answers ("p), rectangles and protected areas, margins left and right, stacks of colours and attributes (#).
var sequences = map[string]sequence{
	"A": moves((*Terminal).up), "k": moves((*Terminal).up),
	"B": moves((*Terminal).down), "e": moves((*Terminal).down),
	"C": moves((*Terminal).right), "a": moves((*Terminal).right),
	"D": moves((*Terminal).left), "j": moves((*Terminal).left),
	"E": moves(func(t *Terminal, n int) { t.down(n); t.cur.x = 0 }),
	"F": moves(func(t *Terminal, n int) { t.up(n); t.cur.x = 0 }),
	"G": moves((*Terminal).column), "`": moves((*Terminal).column),
	"d": moves(func(t *Terminal, n int) { t.moveTo(t.cur.x, n-1) }),
	"H": {do: moveToPlace}, "f": {do: moveToPlace},
	"I": moves((*Terminal).tab), "Z": moves(func(t *Terminal, n int) { t.tab(-n) }),

	"J": {do: eraseDisplay}, "?J": {do: eraseDisplay}, "K": {do: eraseLine}, "?K": {do: eraseLine},
	"X": edits(func(t *Terminal, r *row, n int) { r.erase(t.cur.x, min(t.cur.x+n, t.cols), t.cols, t.blank) }),
	"@": edits(func(t *Terminal, r *row, n int) { r.insert(t.cur.x, n, t.cols, t.blank) }),
	"P": edits(func(t *Terminal, r *row, n int) { r.remove(t.cur.x, n, t.cols, t.blank) }),
	"L": shiftsLines((*screen).scrollDown), "M": shiftsLines((*screen).scrollUp),
	"S": {do: func(t *Terminal, p *params) { t.scrollUp(p.get(0, 1)) }},
	// With several numbers T is of the mouse, and with any s is of left and right margins.
	"T": {may: says(func(p *params) bool { return p.n <= 1 }), do: func(t *Terminal, p *params) { t.scrollDown(p.get(0, 1)) }},
	"b": {do: func(t *Terminal, p *params) { t.repeat(p.get(0, 1)) }},

	"m":  {do: func(t *Terminal, p *params) { t.cur.pen.apply(p); t.penDirty = true }},
	"r":  {do: setRegion},
	"g":  {do: clearTabs},
	"s":  {may: says(func(p *params) bool { return p.n == 0 }), do: func(t *Terminal, _ *params) { t.saveCursor() }},
	"u":  {do: func(t *Terminal, _ *params) { t.restoreCursor() }},
	"!p": {do: func(t *Terminal, _ *params) { t.softReset() }},
	" q": {may: says(func(p *params) bool { return p.get(0, 0) <= 6 }), do: func(t *Terminal, p *params) { t.desc.shape = p.get(0, 0) }},

	// Not KAM, which locks the keyboard, nor SRM.
	"h": {may: only(isANSIMode), do: eachMode(func(t *Terminal, n int) { t.setMode(-n, true) })},
	"l": {may: only(isANSIMode), do: eachMode(func(t *Terminal, n int) { t.setMode(-n, false) })},

	"?h": {may: only(isPrivateMode), do: eachMode(func(t *Terminal, n int) { t.setMode(n, true) })},
	"?l": {may: only(isPrivateMode), do: eachMode(func(t *Terminal, n int) { t.setMode(n, false) })},
	"?s": {may: only(isPrivateMode), do: eachMode((*Terminal).saveMode)}, // XTSAVE
	"?r": {may: only(isPrivateMode), do: eachMode((*Terminal).takeMode)}, // XTRESTORE
	"$p": {may: asks, do: func(t *Terminal, p *params) { t.answer("\x1b[%d;%d$y", p.get(0, 0), t.report(-p.get(0, 0))) }},
	// Synchronized output is answered as known: a terminal that isn't able to do it ignores it.
	"?$p": {may: asks, do: func(t *Terminal, p *params) { t.answer("\x1b[?%d;%d$y", p.get(0, 0), t.report(p.get(0, 0))) }},

	">m": {may: says(func(p *params) bool { return isKeyResource(p) && p.n <= 2 && p.get(1, 0) <= 9 }), do: modifyKeys},
	">n": {may: func(s *scanner) (asks, ok bool) { // the same, off: Reset can undo the other
		ok = s.params.n > 0 && s.params.v[0] >= 0 && isKeyResource(&s.params)
		s.b, s.params.n = 'm', 1
		return false, ok
	}, do: modifyKeys},
	">u": {do: func(t *Terminal, p *params) { t.keyboard().push(p.get(0, 0)) }},
	"=u": {do: func(t *Terminal, p *params) { t.keyboard().change(p.get(0, 0), p.get(1, 1)) }},
	"<u": {do: func(t *Terminal, p *params) { t.scr.keys.pop(p.get(0, 1)) }},
	"?u": {may: asks, do: func(t *Terminal, _ *params) {
		if t.kitty {
			t.answer("\x1b[?%du", t.scr.keys.flags)
		}
	}},
	"?m": {may: asks},

	"c":  {may: asks, do: identifies("\x1b[?62;22c")}, // a VT220 with colours
	">c": {may: asks, do: identifies("\x1b[>1;0;0c")},
	"=c": {may: asks, do: identifies("\x1bP!|00000000\x1b\\")},
	">q": {may: asks, do: func(t *Terminal, _ *params) { t.answer("\x1bP>|agent-init\x1b\\") }},
	"n":  {may: asksFor(0, 5, 6), do: answerStatus},
	"?n": {may: asksFor(0, 6, 996), do: answerStatus},
	"?S": {may: asksFor(1, 1, 4)}, // XTSMGRAPHICS: to read, or the largest
	"t":  {may: permitWindow, do: func(t *Terminal, p *params) { t.window(p) }},
}

// permitCSI reports whether the control sequence that was read may pass. It leaves in it what may.
func (s *scanner) permitCSI() (ok bool) {
	var key [3]byte
	q := sequences[string(append(appendSet(appendSet(key[:0], s.private), s.inter), s.b))]
	if s.do, s.asks = q.do, false; q.may == nil {
		return q.do != nil
	}
	s.asks, ok = q.may(s)
	return ok
}

func asks(*scanner) (asks, ok bool) { return true, true }

// asksFor is a question if parameter i is one of these.
func asksFor(i int, what ...int) func(*scanner) (asks, ok bool) {
	return func(s *scanner) (asks, ok bool) { return true, slices.Contains(what, s.params.get(i, 0)) }
}

func says(ok func(p *params) bool) func(*scanner) (bool, bool) {
	return func(s *scanner) (bool, bool) { return false, ok(&s.params) }
}

// only passes those of the numbers that are right, if there are any.
func only(right func(int) bool) func(*scanner) (bool, bool) {
	return says(func(p *params) bool { p.filter(right); return p.n > 0 })
}

func permitWindow(s *scanner) (asks, ok bool) {
	p := &s.params
	switch p.get(0, 0) {
	case 14, 15, 16, 18, 19: // sizes
		return true, true
	case 22, 23: // titles, put aside and taken back
		p.n = min(p.n, 2)
		return false, p.get(1, 0) <= 2
	}
	return false, false
}

func isKeyResource(p *params) bool { return p.get(0, 0) < len(keyResources{}) }

func isANSIMode(number int) bool { return slices.Contains(modeNumbers[:], -number) }

// isPrivateMode reports whether programs may change a DEC private mode: those that the model knows and Reset brings
// back, and no others. So not VT52 (2), the user's keys (1061) and other keyboards (1050 and on), win32 input (9001),
// what Meta sends (1034 and on), kitty's handling of signals (19997), foot's input method (737769).
func isPrivateMode(number int) bool {
	screens := []int{6, 47, 1047, 1048, 1049}
	return slices.Contains(screens, number) || slices.Contains(modeNumbers[:], number) || slices.Contains(mouseModes, number)
}

// permitQuestion: DECRQSS of what it was made for, since xterm once answered with the
// text that it was asked for (CVE-2008-2383), and XTGETTCAP of names in hexadecimal.
func permitQuestion(inter byte, data []byte) bool {
	if inter == '$' {
		return slices.Contains([]string{"m", "r", "s", "t", " q", `"q`, `"p`}, string(data))
	}
	return inter == '+' && len(data) > 0 && len(bytes.Trim(data, "0123456789abcdefABCDEF;")) == 0
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// permitImage judges the keys of an image of kitty's. Its bytes have to come with it:
// a file or shared memory (t=f, t, s) would be one of the person's machine.
func permitImage(data []byte) (asks, ok bool) {
	if len(data) == 0 || data[0] != 'G' {
		return false, false
	}
	for _, field := range strings.Split(string(data[1:]), ",") {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case key == "" && value == "":
		case len(key) != 1 || strings.Trim(key, letters) != "" || strings.Trim(value, letters+"0123456789-") != "":
			return false, false
		case key == "t" && value != "d":
			return false, false
		case key == "a" && value == "q":
			asks = true
		}
	}
	return asks, true
}
