package terminal

import (
	"fmt"
	"strconv"
	"strings"
)

// maxReplies bounds the answers that nobody has fetched; further ones are dropped.
const maxReplies = 4096

// answers is what the terminal can't know of itself.
type answers struct {
	fg, bg, cursor *uint32 // 0xRRGGBB
	kitty          bool
}

// SetColors says which colours (0xRRGGBB) to answer for the foreground and the
// background when programs ask and have set none themselves. Before, such questions
// get no answer.
func (t *Terminal) SetColors(fg, bg uint32) {
	t.answers.fg, t.answers.bg, t.answers.cursor = &fg, &bg, &fg
}

// SetKittyKeyboard says whether to answer that the terminal knows kitty's keyboard
// protocol. It should be what the next client's terminal knows; false at first.
func (t *Terminal) SetKittyKeyboard(known bool) { t.answers.kitty = known }

func (a *answers) color(number int) *uint32 {
	switch number {
	case 10:
		return a.fg
	case 11:
		return a.bg
	case 12:
		return a.cursor
	}
	return nil
}

// Replies returns the answers to what programs asked since the last call, as a
// terminal would type them. They are for the program only while no real terminal
// answers. Nothing that a program wrote is in them, apart from numbers.
func (t *Terminal) Replies() []byte {
	r := t.replies
	t.replies = nil
	return r
}

func (t *Terminal) answer(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if len(t.replies)+len(s) <= maxReplies {
		t.replies = append(t.replies, s...)
	}
}

// identify answers DA1, DA2, DA3 and XTVERSION.
func (t *Terminal) identify(final byte) {
	s := &t.scan
	switch {
	case final == 'c' && s.params.get(0, 0) != 0:
	case final == 'c' && s.private == 0:
		t.answer("\x1b[?62;22c") // a VT220 with colours
	case final == 'c' && s.private == '>':
		t.answer("\x1b[>1;0;0c")
	case final == 'c' && s.private == '=':
		t.answer("\x1bP!|00000000\x1b\\")
	case final == 'q' && s.private == '>':
		t.answer("\x1bP>|agent-init\x1b\\")
	}
}

// deviceStatus answers DSR.
func (t *Terminal) deviceStatus(what int) {
	switch what {
	case 5:
		t.answer("\x1b[0n")
	case 6:
		t.answer("\x1b[%d;%dR", t.reportedRow(), t.cur.x+1)
	}
}

func (t *Terminal) privateStatus(what int) {
	switch {
	case what == 6:
		t.answer("\x1b[?%d;%d;1R", t.reportedRow(), t.cur.x+1)
	case what == 996 && t.answers.bg != nil: // dark or light
		scheme := 1
		bg := *t.answers.bg
		if 299*(bg>>16&0xff)+587*(bg>>8&0xff)+114*(bg&0xff) >= 128000 {
			scheme = 2
		}
		t.answer("\x1b[?997;%dn", scheme)
	}
}

func (t *Terminal) reportedRow() int {
	if t.cur.origin {
		return t.cur.y - t.top + 1
	}
	return t.cur.y + 1
}

// requestMode answers DECRQM. Synchronized output is answered as known: a terminal
// that isn't able to do it ignores it.
func (t *Terminal) requestMode(number int, private bool) {
	if private {
		t.answer("\x1b[?%d;%d$y", number, t.privateMode(number))
		return
	}
	value := 0
	switch {
	case number == 4 && t.modes.has(modeInsert), number == 20 && t.modes.has(modeNewline):
		value = 1
	case number == 4, number == 20:
		value = 2
	}
	t.answer("\x1b[%d;%d$y", number, value)
}

// requestStatus answers DECRQSS for attributes, margins and the cursor's shape, and
// everything else, XTGETTCAP too, with "unknown".
func (t *Terminal) requestStatus(data []byte) {
	if t.scan.inter == '+' {
		t.answer("\x1bP0+r\x1b\\")
		return
	}
	switch string(data) {
	case "m":
		pen := t.cur.pen
		pen.Link = ""
		sgr := string(appendStyle(nil, Style{}, pen))
		sgr = strings.TrimSuffix(strings.ReplaceAll(sgr, "m\x1b[", ";"), "m")
		t.answer("\x1bP1$r0%sm\x1b\\", strings.Replace(sgr, "\x1b[", ";", 1))
	case "r":
		t.answer("\x1bP1$r%d;%dr\x1b\\", t.top+1, t.bottom+1)
	case " q":
		t.answer("\x1bP1$r%d q\x1b\\", t.desc.shape)
	default:
		t.answer("\x1bP0$r\x1b\\")
	}
}

// answerKeys answers what flags of kitty's keyboard protocol are in use.
func (t *Terminal) answerKeys() {
	if t.answers.kitty {
		t.answer("\x1b[?%du", t.keys.stack(t.Alternate()).flags())
	}
}

// answerColor answers what OSC name asks: what programs set, else what is known.
func (t *Terminal) answerColor(name, spec string, known *uint32) {
	c, ok := parseColor(spec)
	if spec == "" && known != nil {
		c, ok = *known, true
	}
	if ok {
		r, g, b := c>>16&0xff*0x101, c>>8&0xff*0x101, c&0xff*0x101
		t.answer("\x1b]%s;rgb:%04x/%04x/%04x\x1b\\", name, r, g, b)
	}
}

// parseColor reads #RGB, #RRGGBB and rgb:R/G/B with one to four digits each.
func parseColor(spec string) (uint32, bool) {
	var parts []string
	if hex, ok := strings.CutPrefix(spec, "#"); ok && (len(hex) == 3 || len(hex) == 6 || len(hex) == 12) {
		n := len(hex) / 3
		parts = []string{hex[:n], hex[n : 2*n], hex[2*n:]}
	} else if rest, ok := strings.CutPrefix(spec, "rgb:"); ok {
		parts = strings.Split(rest, "/")
	}
	if len(parts) != 3 {
		return 0, false
	}
	var c uint32
	for _, p := range parts {
		v, err := strconv.ParseUint(p, 16, 16)
		if err != nil {
			return 0, false
		}
		largest := uint64(1)<<(4*len(p)) - 1
		c = c<<8 | uint32((v*255+largest/2)/largest)
	}
	return c, true
}
