package terminal

import (
	"fmt"
	"strconv"
	"strings"
)

// maxReplies bounds the answers that nobody has fetched; further ones are dropped.
const maxReplies = 4096

// Learn takes from a sequence that a terminal has typed what the model can't know by itself: the colours (OSC 10 and
// 11), and whether there is kitty's keyboard protocol. Programs that ask are answered that from then on.
func (t *Terminal) Learn(seq []byte) {
	text := strings.TrimRight(string(seq), "\x07\x1b\\")
	if strings.HasPrefix(text, "\x1b[?") && strings.HasSuffix(text, "u") {
		t.kitty = true
	}
	for _, number := range []string{"10", "11"} {
		spec, ok := strings.CutPrefix(text, "\x1b]"+number+";")
		// Terminals answer rgb:RR/GG/BB or rgb:RRRR/GGGG/BBBB.
		if c, isColor := parseColor(spec); ok && isColor && (len(spec) == 12 || len(spec) == 18) {
			t.known[number] = c
		}
	}
}

// Replies returns the answers to what programs asked since the last call, as a terminal would type them. They are for
// the program only while no real terminal answers. Nothing that a program wrote is in them, apart from numbers.
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
		sgr := string(appendStyle(nil, look{}, pen))
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

// answerColor answers what OSC name asks: what programs set, else what is known.
func (t *Terminal) answerColor(name string) {
	c, ok := parseColor(t.desc.colors[name])
	if t.desc.colors[name] == "" {
		// The cursor's is that of the text.
		c, ok = t.known[strings.Replace(name, "12", "10", 1)]
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
