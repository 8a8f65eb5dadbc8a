package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEncoded bounds an encoded Event, in bytes, and what Decode looks at: a line is one atomic write.
const maxEncoded = 4096

// The bytes that each text has, encoded: their sum, with the rest of a line (under 760), is below maxEncoded.
const (
	maxShort = 16   // a kind, a verdict, who asked, a fingerprint
	maxWord  = 64   // protocol, address, process name, route, method, hash
	maxModel = 128  // the longest are Bedrock's, with their region and vendor
	maxPath  = 256  // of a request
	maxRule  = 512  // a file name and a line
	maxText  = 1024 // a name (an escaped DNS name has up to 1004 bytes), a reason
)

// Encode returns e as one JSON object in printable ASCII, without a newline. Long fields are cut, bad UTF-8 is U+FFFD.
func Encode(e Event) []byte {
	e = e.capped()
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 { // the range of RFC 3339
		e.Time = time.Time{}
	}
	e.Time = e.Time.UTC()
	plain, _ := json.Marshal(e) // nothing in an Event can fail to encode once its time is in range
	return escape(plain)
}

// Decode is the strict reverse of Encode: one object, known fields only, at most maxEncoded bytes.
func Decode(raw []byte) (Event, error) {
	if len(raw) > maxEncoded {
		return Event{}, fmt.Errorf("event of %d bytes is longer than %d", len(raw), maxEncoded)
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' { // null would decode as an empty event
		return Event{}, errors.New("event is not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var e Event
	if err := d.Decode(&e); err != nil {
		return Event{}, fmt.Errorf("decode event: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Event{}, errors.New("event is followed by more data")
	}
	return e.capped(), nil
}

// capped returns e with every text field valid UTF-8 and within its budget.
func (e Event) capped() Event {
	e.Kind, e.Asker = Kind(capText(string(e.Kind), maxShort)), Asker(capText(string(e.Asker), maxShort))
	e.Verdict, e.Enforce = Verdict(capText(string(e.Verdict), maxShort)), Verdict(capText(string(e.Enforce), maxShort))
	for i, s := range e.texts() {
		*s = capText(*s, longest[i])
	}
	e.Prev = capText(e.Prev, maxWord)
	return e
}

// capText cuts s to what is at most budget bytes once encoded, with U+FFFD for each byte that is not UTF-8.
func capText(s string, budget int) string {
	for i, r := range s {
		if budget -= encodedLen(r); budget < 0 {
			s = s[:i]
			break
		}
	}
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func encodedLen(r rune) int {
	switch {
	case r > 0xffff:
		return len(`\ud800\udc00`)
	case r < 0x20, r > 0x7e, r == '<', r == '>', r == '&': // encoding/json escapes these three for HTML
		return len(`\u0000`)
	case r == '"', r == '\\':
		return 2
	}
	return 1
}

// escape turns what encoding/json leaves as it is into \u escapes: DEL, C1 controls (a terminal may take U+009B for ESC
// [), line separators and marks that reorder text. Outside of strings JSON has no such bytes.
func escape(plain []byte) []byte {
	if !bytes.ContainsFunc(plain, func(r rune) bool { return r >= 0x7f }) {
		return plain
	}
	out := make([]byte, 0, len(plain)*2)
	for _, u := range utf16.Encode([]rune(string(plain))) {
		if u < 0x7f {
			out = append(out, byte(u))
		} else {
			out = fmt.Appendf(out, `\u%04x`, u)
		}
	}
	return out
}

// An event on its way from a process of ours, which may be somebody else's by now, to the keeper, which holds
// CAP_NET_ADMIN: a head of fixed size, then its texts one after the other. There is no syntax in it to parse, and no order, nesting or
// escaping. The head says what may be spoken of by number, so that it has no number for anything else.

type packedHead struct {
	Kind, Verdict, Enforce, Asker uint8 // places in the lists below
	HasUID                        uint8 // 0 or 1
	Port, Status                  uint16
	UID                           uint32
	PID                           int32
	Out, In, TokensIn, TokensOut  uint64
	Millis, Suppressed            uint64
	Lengths                       [packedTexts]uint16
}

// Sender is a process of ours that may be somebody else's by now.
type Sender struct {
	name string
	may  []Kind // what it may speak of
}

// The senders of events.
var (
	TheGuard  = Sender{"the guard", []Kind{DNS, Connect, HTTP, Drop}}
	TheBroker = Sender{"the broker", []Kind{Broker}}
)

// What they may say. None of a verdict is not a verdict.
var (
	packedVerdicts = []Verdict{Allow, Deny, Info, Fault}
	packedEnforces = []Verdict{"", Deny}
	packedAskers   = []Asker{Agent, ByGuard, BySelfTest, ByOutside, ByBroker}
)

const packedTexts = 11

// longest bounds the texts in encoded bytes, in the order that texts has.
var longest = [packedTexts]int{maxText, maxWord, maxWord, maxRule, maxText, maxWord, maxWord, maxWord, maxPath, maxModel, maxShort}

func (e *Event) texts() [packedTexts]*string {
	return [packedTexts]*string{
		&e.Name, &e.IP, &e.Proto, &e.Rule, &e.Reason, &e.Comm, &e.Route, &e.Method, &e.Path, &e.Model, &e.Key,
	}
}

var packedHeadSize = binary.Size(packedHead{})

// MaxPacked is the size in bytes that no packed Event exceeds.
var MaxPacked = packedHeadSize + 2*maxText + maxRule + 5*maxWord + maxPath + maxModel + maxShort

const none = 0xff // what stands in a head for what may not be said

func place[T comparable](list []T, v T) uint8 {
	if i := slices.Index(list, v); i >= 0 {
		return uint8(i)
	}
	return none
}

// Pack returns e as Untrusted reads it, without its Seq, Time and Prev, which are the keeper's to give.
func Pack(e Event) []byte {
	e = e.capped()
	h := packedHead{
		Kind: place(trafficKinds, e.Kind), Verdict: place(packedVerdicts, e.Verdict),
		Enforce: place(packedEnforces, e.Enforce), Asker: place(packedAskers, e.Asker),
		Port: e.Port, Status: e.Status, PID: int32(e.PID),
		Out: e.Out, In: e.In, TokensIn: e.TokensIn, TokensOut: e.TokensOut, Millis: e.Millis, Suppressed: e.Suppressed,
	}
	if e.UID != nil {
		h.HasUID, h.UID = 1, *e.UID
	}
	var text []byte
	for i, s := range e.texts() {
		h.Lengths[i] = uint16(len(*s))
		text = append(text, *s...)
	}
	b, _ := binary.Append(make([]byte, 0, packedHeadSize+len(text)), binary.BigEndian, h) // of fixed size: nothing can fail
	return append(b, text...)
}

// Untrusted is an event that an unprivileged process packed; what none of ours sends is a fault of its, in our words.
func Untrusted(by Sender, raw []byte) Event {
	e, err := unpack(raw)
	if err == nil && !slices.Contains(by.may, e.Kind) {
		err = fmt.Errorf("kind %s: not %s's to say", e.Kind, by.name)
	}
	if err != nil {
		return Event{Kind: Guard, Verdict: Fault, Reason: by.name + " sent an event that was refused: " + err.Error()}
	}
	return e
}

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
		return Event{}, fmt.Errorf("kind %d, verdict %d, enforce %d, asker %d, uid %d: not to be said",
			h.Kind, h.Verdict, h.Enforce, h.Asker, h.HasUID)
	}
	e := Event{
		Kind: trafficKinds[h.Kind], Verdict: packedVerdicts[h.Verdict], Enforce: packedEnforces[h.Enforce], Asker: packedAskers[h.Asker],
		Port: h.Port, Status: h.Status, PID: int(h.PID),
		Out: h.Out, In: h.In, TokensIn: h.TokensIn, TokensOut: h.TokensOut, Millis: h.Millis, Suppressed: h.Suppressed,
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
