package session

import (
	"bytes"
	"fmt"

	"github.com/agent-init/agent-init/pkg/session/internal/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// learn takes from a terminal's answers what the model can't know by itself,
// for programs that ask while nobody looks: the colours (OSC 10 and 11), and
// whether there is a kitty keyboard.
func (k *known) learn(b []byte, t *terminal.Terminal) {
	if bytes.IndexByte(b, protocol.Esc) < 0 {
		return
	}
	for len(b) > 0 {
		n, complete := protocol.Sequence(b)
		if complete && n > 4 && b[0] == protocol.Esc {
			k.answer(b[:n], t)
		}
		b = b[n:]
	}
}

// known is what the terminals have told.
type known struct {
	fg, bg       uint32
	hasFG, hasBG bool
}

func (k *known) answer(seq []byte, t *terminal.Terminal) {
	switch {
	case bytes.HasPrefix(seq, []byte("\x1b[?")) && seq[len(seq)-1] == 'u':
		t.SetKittyKeyboard(true)
		return
	case bytes.HasPrefix(seq, []byte("\x1b]10;rgb:")):
		if c, ok := parseColour(seq[9:]); ok {
			k.fg, k.hasFG = c, true
		}
	case bytes.HasPrefix(seq, []byte("\x1b]11;rgb:")):
		if c, ok := parseColour(seq[9:]); ok {
			k.bg, k.hasBG = c, true
		}
	default:
		return
	}
	if k.hasFG && k.hasBG {
		t.SetColors(k.fg, k.bg)
	}
}

// parseColour reads RR/GG/BB or RRRR/GGGG/BBBB (XParseColor(3)), as 0xRRGGBB.
func parseColour(b []byte) (uint32, bool) {
	b = bytes.TrimRight(b, "\x07\x1b\\")
	parts := bytes.Split(b, []byte{'/'})
	if len(parts) != 3 {
		return 0, false
	}
	var out uint32
	for _, p := range parts {
		var v uint32
		if n, err := fmt.Sscanf(string(p), "%x", &v); n != 1 || err != nil || len(p) != 2 && len(p) != 4 {
			return 0, false
		}
		if len(p) == 4 {
			v >>= 8
		}
		out = out<<8 | v&0xff
	}
	return out, true
}
