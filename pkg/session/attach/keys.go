package attach

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/agent-init/agent-init/pkg/session/internal/typed"
)

// Prefix is the key that commands to the client begin with: a control
// character, or 0 for none.
type Prefix byte

// DefaultPrefix is Ctrl-].
const DefaultPrefix Prefix = 0x1d

// ParsePrefix reads "ctrl-]", "C-]", "^]" or "none".
func ParsePrefix(s string) (Prefix, error) {
	if s == "none" {
		return 0, nil
	}
	key := ""
	for _, p := range []string{"ctrl-", "ctrl+", "c-", "^"} {
		if rest, ok := strings.CutPrefix(strings.ToLower(s), p); ok {
			key = rest
			break
		}
	}
	if len(key) != 1 {
		return 0, fmt.Errorf("%q is no key: ctrl-] and the like, or none", s)
	}
	c := key[0]
	if c >= 'a' && c <= 'z' {
		c -= 0x20
	}
	if c < '@' || c > '_' {
		return 0, fmt.Errorf("%q is no control character", s)
	}
	switch p := Prefix(c - '@'); p {
	case 0, 0x1b, '\r', '\n', '\t', '\b':
		return 0, errors.New("programs need that key themselves: take another one")
	default:
		return p, nil
	}
}

// String is how people write it.
func (p Prefix) String() string {
	if p == 0 {
		return "none"
	}
	return "Ctrl-" + string(rune(byte(p)+'@'))
}

// Name is how ParsePrefix reads it.
func (p Prefix) Name() string { return strings.ToLower(p.String()) }

// code is the key without Ctrl, as CSI u has it.
func (p Prefix) code() int {
	c := int(p) + '@'
	if p.letter() {
		c += 0x20
	}
	return c
}

func (p Prefix) letter() bool { return p >= 1 && p <= 26 }

// keys finds the prefix key, and the key after it, in what a terminal types. It
// hands on whole characters and sequences only, so that nothing comes between
// the parts of one; and pasted text as it is.
type keys struct {
	prefix   Prefix
	held     []byte // an unfinished sequence
	typed    []byte // the prefix as it was typed: the next key is a command
	pasting  bool
	released int // the release of this key is not for the program
}

var (
	pasteBegins = []byte("\x1b[200~")
	pasteEnds   = []byte("\x1b[201~")
)

// scan takes what was typed and calls input with what is for the program, and
// command with each key that follows the prefix.
func (k *keys) scan(b []byte, input func([]byte), command func(byte)) {
	if len(k.held) > 0 {
		b = append(k.held, b...)
		k.held = nil
	}
	begin := 0 // of what is for the program
	hand := func(to int) {
		if to > begin {
			input(b[begin:to])
		}
	}
	i := 0
	for seq, complete := range typed.Sequences(b) {
		if !complete {
			hand(i)
			k.held = bytes.Clone(b[i:])
			return
		}
		i += len(seq)
		switch {
		case bytes.Equal(seq, pasteBegins):
			k.pasting = true
		case bytes.Equal(seq, pasteEnds):
			k.pasting = false
		case !k.pasting && k.take(seq, input, command, func() { hand(i - len(seq)); begin = i }):
		}
	}
	hand(len(b))
}

// take looks at one key, and reports whether it is not for the program. Before
// it acts on one it calls flush.
func (k *keys) take(seq []byte, input func([]byte), command func(byte), flush func()) bool {
	key := decodeKey(seq)
	if key.event == keyReleased && key.code == k.released && key.code != 0 {
		flush()
		return true
	}
	isPrefix := k.prefix != 0 && (len(seq) == 1 && seq[0] == byte(k.prefix) || key.types(k.prefix))
	switch {
	case k.typed == nil:
		if !isPrefix || key.event == keyReleased {
			return false
		}
		flush()
		k.typed, k.released = bytes.Clone(seq), key.code
		return true
	case key.event == keyReleased || isModifier(key.code) || typed.IsReport(seq) || isMouse(seq):
		return false // it was not pressed after the prefix
	}
	flush()
	typed := k.typed
	k.typed, k.released = nil, key.code
	switch {
	case isPrefix:
		input(typed)
	case len(seq) == 1:
		command(seq[0])
	case key.character() != 0:
		command(key.character())
	}
	return true
}

// waiting reports whether an unfinished sequence is held: if nothing follows
// soon, it was the key Escape.
func (k *keys) waiting() bool { return len(k.held) > 0 }

// flush hands on what is held.
func (k *keys) flush(input func([]byte)) {
	held := k.held
	k.held = nil
	if len(held) == 0 {
		return
	}
	if k.typed != nil { // Escape after the prefix: it was not meant
		k.typed = nil
		return
	}
	input(held)
}
