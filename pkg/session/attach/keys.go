package attach

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/session/internal/typed"
)

// Prefix is the key that commands to the client begin with: a control character, or 0 for none.
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

// keys finds the prefix key, and the key after it, in what a terminal types. It hands on whole characters and
// sequences only, so that nothing comes between the parts of one; and pasted text as it is.
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

// scan calls input with what was typed for the program, and command with each key that follows the prefix.
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

// take looks at one key, and reports whether it is not for the program. Before it acts on one it calls flush.
func (k *keys) take(seq []byte, input func([]byte), command func(byte), flush func()) bool {
	key := decodeKey(seq)
	if key.released && key.code == k.released && key.code != 0 {
		flush()
		return true
	}
	isPrefix := k.prefix != 0 && (len(seq) == 1 && seq[0] == byte(k.prefix) || key.types(k.prefix))
	switch {
	case k.typed == nil:
		if !isPrefix || key.released {
			return false
		}
		flush()
		k.typed, k.released = bytes.Clone(seq), key.code
		return true
	case key.released || isModifier(key.code) || typed.IsReport(seq) || typed.IsMouse(seq):
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

// keyPress is a key as kitty's keyboard protocol and xterm's modifyOtherKeys say it.
type keyPress struct {
	code      int // what the key types by itself; 0: it is no such sequence
	shifted   int // what it types with Shift, if that is said
	base      int // what the key types in the place that it has on a keyboard of the US, if that is said
	modifiers int // as bits
	released  bool
}

// Modifiers of kitty's keyboard protocol.
const (
	withShift = 1
	withAlt   = 2
	withCtrl  = 4
	withLocks = 64 | 128 // Caps and Num
)

// decodeKey reads CSI code:shifted:base;modifiers:event u (kitty's keyboard protocol,
// sw.kovidgoyal.net/kitty/keyboard-protocol) and CSI 27;modifiers;code ~ (xterm's modifyOtherKeys).
func decodeKey(seq []byte) keyPress {
	if len(seq) < 4 || !bytes.HasPrefix(seq, []byte("\x1b[")) {
		return keyPress{}
	}
	fields := strings.Split(string(seq[2:len(seq)-1]), ";")
	codes, modifiers := "", "1"
	switch final := seq[len(seq)-1]; {
	case final == 'u':
		codes = fields[0]
		if len(fields) > 1 {
			modifiers = fields[1]
		}
	case final == '~' && len(fields) == 3 && fields[0] == "27":
		modifiers, codes = fields[1], fields[2]
	default:
		return keyPress{}
	}
	var k keyPress
	for i, code := range strings.Split(codes, ":") {
		n, err := strconv.Atoi(code)
		if err != nil && code != "" || n < 0 || n > 0x10ffff || i > 2 {
			return keyPress{}
		}
		*[]*int{&k.code, &k.shifted, &k.base}[i] = n
	}
	modifiers, kind, _ := strings.Cut(modifiers, ":")
	if modifiers != "" {
		bits, err := strconv.Atoi(modifiers)
		if err != nil || bits < 1 {
			return keyPress{}
		}
		k.modifiers = (bits - 1) &^ withLocks
	}
	switch kind {
	case "", "1", "2":
	case "3":
		k.released = true
	default:
		return keyPress{}
	}
	return k
}

// controls are the keys that type a control character with Ctrl on keyboards where its own key needs AltGr: Ctrl-5 is
// Ctrl-] for a German or French hand (xterm's and the kernel's tables have them since the VT220).
var controls = map[Prefix]string{0x1c: "4", 0x1d: "5", 0x1e: "6~", 0x1f: "7/-"}

// types reports whether the key, without such a protocol, would type the prefix.
func (k keyPress) types(p Prefix) bool {
	if k.modifiers&withCtrl == 0 {
		return false
	}
	also := k.modifiers &^ withCtrl
	code := p.code()
	if p.letter() {
		// With Shift or Alt it is another key to a program.
		return also == 0 && (k.code == code || k.foreign() && k.base == code)
	}
	if also&^(withShift|withAlt) != 0 { // AltGr is Alt to some terminals
		return false
	}
	if k.code == code || k.shifted == code || k.foreign() && k.base == code {
		return true
	}
	return also&withAlt == 0 && k.code != 0 && k.code < 0x80 && strings.IndexByte(controls[p], byte(k.code)) >= 0
}

// foreign reports whether the key's own character is none that a command could be.
func (k keyPress) foreign() bool { return k.code > 0x7f }

func (k keyPress) character() byte {
	code := k.code
	switch {
	case k.modifiers&^(withShift|withCtrl) != 0:
		return 0
	case k.modifiers&withShift != 0 && k.shifted != 0: // of "?"
		code = k.shifted
	case k.foreign() && k.base != 0:
		code = k.base
	}
	if code <= 0x20 || code >= 0x7f || k.modifiers&withCtrl != 0 {
		return 0
	}
	return byte(code)
}

// isModifier: Shift, Ctrl and the like have keys of their own in kitty's protocol, if a program asks for that.
func isModifier(code int) bool {
	return code >= 57441 && code <= 57454 || code >= 57358 && code <= 57360
}
