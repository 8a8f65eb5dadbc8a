// Package audit is the record of what was decided about the agent's traffic:
// one JSON object per line, in an order that a gap betrays.
//
// The field names of Event are a public contract, held by a golden file.
// Writers never block the path that they report on: Limiter drops repeats and
// says how many, and Log bounds the disk that it may use.
package audit

import (
	"time"
	"unicode/utf8"
)

// Kind says which part of agent-init an Event comes from.
type Kind string

// The kinds of event.
const (
	DNS      Kind = "dns"      // a name was asked for
	Connect  Kind = "connect"  // a connection passed the name gate, or did not
	HTTP     Kind = "http"     // a request passed the name gate, or did not
	Drop     Kind = "drop"     // the kernel refused a packet
	Grant    Kind = "grant"    // a runtime grant was made, expired or was revoked
	Policy   Kind = "policy"   // a policy was loaded or refused
	SelfTest Kind = "selftest" // the probes were run
	Guard    Kind = "guard"    // the guard or the kernel's rules changed state
	Session  Kind = "session"  // the agent started or ended
)

// Verdict is what was decided.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
	Info  Verdict = "info"  // nothing was decided: a change of state
	Fault Verdict = "fault" // something broke; what it guards is sealed
)

// maxField bounds every text field, in bytes, so that no name or reason that
// an attacker chooses can fill the log by itself.
const maxField = 512

// Event is one line of the audit log. Seq and Time are set by Log.
type Event struct {
	Seq        uint64    `json:"seq"`
	Time       time.Time `json:"time"`
	Kind       Kind      `json:"event"`
	Verdict    Verdict   `json:"verdict"`
	Name       string    `json:"name,omitempty"`
	IP         string    `json:"ip,omitempty"`
	Port       uint16    `json:"port,omitempty"`
	Proto      string    `json:"proto,omitempty"`
	Rule       string    `json:"rule,omitempty"` // file:line of the deciding rule
	Reason     string    `json:"reason,omitempty"`
	UID        *uint32   `json:"uid,omitempty"`
	PID        int       `json:"pid,omitempty"`
	Comm       string    `json:"comm,omitempty"`
	Suppressed uint64    `json:"suppressed,omitempty"` // like events left out since the last one shown
}

// Recorder takes an Event. It is safe for concurrent use and does not block.
type Recorder func(Event)

// Discard is a Recorder that keeps nothing.
func Discard(Event) {}

// capped returns e with every text field valid UTF-8 of at most maxField bytes.
func (e Event) capped() Event {
	for _, s := range []*string{&e.Name, &e.IP, &e.Proto, &e.Rule, &e.Reason, &e.Comm} {
		*s = capText(*s)
	}
	return e
}

func capText(s string) string {
	if len(s) <= maxField && utf8.ValidString(s) {
		return s
	}
	if len(s) > maxField {
		s = s[:maxField]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if n := len(s); n > 0 && s[n-1] >= utf8.RuneSelf {
			s = s[:n-1]
		}
	}
	return string([]rune(s)) // invalid bytes become U+FFFD
}
