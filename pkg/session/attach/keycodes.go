package attach

import (
	"bytes"
	"strconv"
	"strings"
)

// keyPress is a key as kitty's keyboard protocol and xterm's modifyOtherKeys say it.
type keyPress struct {
	code      int // what the key types by itself; 0: it is no such sequence
	shifted   int // what it types with Shift, if that is said
	base      int // what the key types in the place that it has on a keyboard of the US, if that is said
	modifiers int // as bits
	event     int
}

// Events and modifiers of kitty's keyboard protocol.
const (
	keyPressed  = 1
	keyReleased = 3

	withShift = 1
	withAlt   = 2
	withCtrl  = 4
	withLocks = 64 | 128 // Caps and Num
)

// decodeKey reads CSI code:shifted:base;modifiers:event u (kitty's keyboard protocol,
// sw.kovidgoyal.net/kitty/keyboard-protocol, also xterm's formatOtherKeys) and CSI
// 27;modifiers;code ~ (xterm's modifyOtherKeys).
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
	k := keyPress{event: keyPressed}
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
		k.event = keyReleased
	default:
		return keyPress{}
	}
	return k
}

// controls are the keys that type a control character with Ctrl on keyboards where its
// own key needs AltGr: Ctrl-5 is Ctrl-] for a German or French hand (xterm's and the
// kernel's tables have them since the VT220).
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

// character is what the key types as a command, or 0.
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

// isModifier: Shift, Ctrl and the like have keys of their own in kitty's
// protocol, if a program asks for that.
func isModifier(code int) bool {
	return code >= 57441 && code <= 57454 || code >= 57358 && code <= 57360
}

func isMouse(seq []byte) bool {
	return bytes.HasPrefix(seq, []byte("\x1b[<")) || bytes.HasPrefix(seq, []byte("\x1b[M"))
}
