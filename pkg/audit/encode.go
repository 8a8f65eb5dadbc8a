package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEncoded is the size in bytes that no encoded Event exceeds. It is also the
// most that Decode looks at, and it keeps a line within one atomic write.
const maxEncoded = 4096

// budgets bound each text field in encoded bytes, so that their sum, with the
// fixed part of a line (under 500 bytes), stays below maxEncoded.
const (
	maxWord = 64   // kind, verdict, protocol, address, process name
	maxRule = 512  // a file name and a line
	maxText = 1280 // a name (an escaped DNS name has up to 1004 bytes), a reason
)

// Encode returns e as one JSON object without a newline: printable ASCII only,
// at most maxEncoded bytes. Over-long fields are cut, bytes that are not UTF-8
// become U+FFFD.
func Encode(e Event) []byte {
	e = e.capped()
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 { // the range of RFC 3339
		e.Time = time.Time{}
	}
	e.Time = e.Time.UTC()
	plain, err := json.Marshal(e)
	if err != nil {
		// Nothing in an Event can fail to encode once its time is in range.
		plain, _ = json.Marshal(Event{Kind: Guard, Verdict: Fault, Reason: "event can't be encoded"})
	}
	return escape(plain)
}

// Decode is the strict reverse of Encode: one object, known fields only, at
// most maxEncoded bytes.
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
	e.Kind, e.Asker = Kind(capText(string(e.Kind), maxWord)), Asker(capText(string(e.Asker), maxWord))
	e.Verdict, e.Enforce = Verdict(capText(string(e.Verdict), maxWord)), Verdict(capText(string(e.Enforce), maxWord))
	for i, s := range e.texts() {
		*s = capText(*s, longest[i])
	}
	return e
}

// capText returns the longest part of s from its start that is at most budget
// bytes once encoded, with U+FFFD for each byte that is not UTF-8.
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

// escape turns what encoding/json leaves as it is into \u escapes: DEL, C1
// controls (a terminal may take U+009B for ESC [), line separators and marks
// that reorder text. Outside of strings JSON has no such bytes.
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
