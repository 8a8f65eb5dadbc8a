package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// An event on its way from the guard, which may be somebody else's by now, to the
// keeper, which holds CAP_NET_ADMIN: a head of fixed size, then its texts one after
// the other. There is no syntax in it to parse, and no order, nesting or escaping.
// The head says what the guard may speak of by number, so that it has no number for
// anything else.

// packedHead is the head in memory order; encoding/binary gives it its size.
type packedHead struct {
	Kind, Verdict, Enforce, Asker uint8 // places in the lists below
	HasUID                        uint8 // 0 or 1
	Port                          uint16
	UID                           uint32
	PID                           int32
	Out, In, Millis, Suppressed   uint64
	Lengths                       [packedTexts]uint16
}

// What a guard may say. None of a verdict is not a verdict.
var (
	packedVerdicts = []Verdict{Allow, Deny, Info, Fault}
	packedEnforces = []Verdict{"", Deny}
	packedAskers   = []Asker{Agent, ByGuard, BySelfTest, ByOutside}
)

const packedTexts = 6

// longest bounds the texts in encoded bytes, in the order that texts has.
var longest = [packedTexts]int{maxText, maxWord, maxWord, maxRule, maxText, maxWord}

func (e *Event) texts() [packedTexts]*string {
	return [packedTexts]*string{&e.Name, &e.IP, &e.Proto, &e.Rule, &e.Reason, &e.Comm}
}

var packedHeadSize = binary.Size(packedHead{})

// MaxPacked is the size in bytes that no packed Event exceeds.
var MaxPacked = packedHeadSize + 2*maxText + maxRule + 3*maxWord

// none is what stands in a head for what a guard may not say.
const none = 0xff

func place[T comparable](list []T, v T) uint8 {
	if i := slices.Index(list, v); i >= 0 {
		return uint8(i)
	}
	return none
}

// Pack returns e as Untrusted reads it, without its Seq and Time, which are the
// keeper's to give.
func Pack(e Event) []byte {
	e = e.capped()
	h := packedHead{
		Kind: place(trafficKinds, e.Kind), Verdict: place(packedVerdicts, e.Verdict),
		Enforce: place(packedEnforces, e.Enforce), Asker: place(packedAskers, e.Asker),
		Port: e.Port, PID: int32(e.PID), Out: e.Out, In: e.In, Millis: e.Millis, Suppressed: e.Suppressed,
	}
	if e.UID != nil {
		h.HasUID, h.UID = 1, *e.UID
	}
	var text []byte
	for i, s := range e.texts() {
		h.Lengths[i] = uint16(len(*s))
		text = append(text, *s...)
	}
	b, err := binary.Append(make([]byte, 0, packedHeadSize+len(text)), binary.BigEndian, h)
	if err != nil {
		return nil // a head is of fixed size: nothing in it can fail
	}
	return append(b, text...)
}

// Untrusted is how the keeper reads an event that the unprivileged guard packed.
// What no guard sends becomes a fault of the guard's, in words of this side's.
func Untrusted(raw []byte) Event {
	e, err := unpack(raw)
	if err != nil {
		return Event{Kind: Guard, Verdict: Fault, Reason: "the guard sent an event that was refused: " + err.Error()}
	}
	return e
}

// unpack is the strict reverse of Pack.
func unpack(raw []byte) (Event, error) {
	var h packedHead
	if len(raw) < packedHeadSize {
		return Event{}, fmt.Errorf("%d bytes, fewer than the head's %d", len(raw), packedHeadSize)
	}
	if _, err := binary.Decode(raw, binary.BigEndian, &h); err != nil {
		return Event{}, errors.New("the head does not decode")
	}
	if int(h.Kind) >= len(trafficKinds) || int(h.Verdict) >= len(packedVerdicts) ||
		int(h.Enforce) >= len(packedEnforces) || int(h.Asker) >= len(packedAskers) || h.HasUID > 1 {
		return Event{}, fmt.Errorf("kind %d, verdict %d, enforce %d, asker %d, uid %d: not a guard's to say",
			h.Kind, h.Verdict, h.Enforce, h.Asker, h.HasUID)
	}
	e := Event{
		Kind: trafficKinds[h.Kind], Verdict: packedVerdicts[h.Verdict], Enforce: packedEnforces[h.Enforce], Asker: packedAskers[h.Asker],
		Port: h.Port, PID: int(h.PID), Out: h.Out, In: h.In, Millis: h.Millis, Suppressed: h.Suppressed,
	}
	if h.HasUID == 1 {
		e.UID = &h.UID
	}
	rest := raw[packedHeadSize:]
	for i, s := range e.texts() {
		n := int(h.Lengths[i])
		if n > longest[i] || n > len(rest) || !utf8.Valid(rest[:n]) {
			return Event{}, fmt.Errorf("text %d of %d bytes is too long, cut or not UTF-8", i, n)
		}
		*s, rest = string(rest[:n]), rest[n:]
	}
	if len(rest) > 0 {
		return Event{}, fmt.Errorf("%d bytes after its texts", len(rest))
	}
	return e.capped(), nil
}
