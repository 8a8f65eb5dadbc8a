// Package audit records what was decided about the agent's traffic, in lines of JSON whose numbers betray a gap,
// and whose hashes betray who alters them.
//
// The field names of Event are a public contract, held by a golden file. Writers never hold up the path that they
// report on: Limiter leaves out repeats and says how many, and Log bounds the disk that it may use. Everything that an
// attacker may choose (a name, a reason that quotes one) is capped and escaped by Encode into printable ASCII.
package audit

import (
	"net/netip"
	"slices"
	"time"
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
	Session  Kind = "session"  // the agent started or ended; somebody attached to its terminal
	Broker   Kind = "broker"   // a request went through the broker, or did not
	Phase    Kind = "phase"    // the phase was changed, or was not
)

// trafficKinds are those that the agent can cause at will, and all that processes without privileges may speak of.
var trafficKinds = []Kind{DNS, Connect, HTTP, Drop, Broker}

func (k Kind) traffic() bool { return slices.Contains(trafficKinds, k) }

// Verdict is what was decided.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
	Info  Verdict = "info"  // nothing was decided: a change of state
	Fault Verdict = "fault" // something broke; what it guards is sealed
)

// NoSuchName is the reason of a DNS event about an allowed name that no server knows.
const NoSuchName = "the upstream says that there is no such name"

// Asker says on whose behalf something was asked, if not on the agent's.
type Asker string

// The askers. Counters, explain and suggest know the agent's events alone.
const (
	Agent      Asker = ""         // or any other process of the container
	ByGuard    Asker = "guard"    // the guard itself, which resolves ahead what the policy names
	BySelfTest Asker = "selftest" // a probe of the self-test
	ByBroker   Asker = "broker"   // the broker, for the hosts of its routes
	ByOutside  Asker = "outside"  // somebody beyond the container's network, who connects to it
)

// Event is one line of the audit log, for 1+Suppressed events: no count is ever lost. Log sets Seq and Time.
type Event struct {
	Seq        uint64    `json:"seq"`
	Time       time.Time `json:"time"`
	Kind       Kind      `json:"event"`
	Verdict    Verdict   `json:"verdict"`
	Enforce    Verdict   `json:"enforce,omitempty"` // in monitor mode: what would have been decided, if it is not Verdict
	Name       string    `json:"name,omitempty"`
	IP         string    `json:"ip,omitempty"`
	Port       uint16    `json:"port,omitempty"`
	Proto      string    `json:"proto,omitempty"`
	Rule       string    `json:"rule,omitempty"` // file:line of the deciding rule
	Reason     string    `json:"reason,omitempty"`
	Asker      Asker     `json:"by,omitempty"` // who asked; empty: the agent
	UID        *uint32   `json:"uid,omitempty"`
	PID        int       `json:"pid,omitempty"`
	Comm       string    `json:"comm,omitempty"`
	Route      string    `json:"route,omitempty"` // of the broker
	Method     string    `json:"method,omitempty"`
	Path       string    `json:"path,omitempty"` // below the route, without its query
	Model      string    `json:"model,omitempty"`
	Status     uint16    `json:"status,omitempty"`      // of the answer
	Out        uint64    `json:"bytes_out,omitempty"`   // of a connection or request, those that are suppressed included
	In         uint64    `json:"bytes_in,omitempty"`    // likewise
	TokensIn   uint64    `json:"tokens_in,omitempty"`   // likewise, as the API tells them
	TokensOut  uint64    `json:"tokens_out,omitempty"`  // likewise
	Millis     uint64    `json:"duration_ms,omitempty"` // of this one connection or request
	Key        string    `json:"fingerprint,omitempty"` // of the credential, see route.Fingerprint
	Suppressed uint64    `json:"suppressed,omitempty"`  // earlier events of the same kind that have no line of their own
	Prev       string    `json:"prev,omitempty"`        // the SHA-256 of the line before, in hexadecimal digits
}

// Recorder takes an Event. It is safe for concurrent use, and waits for nothing but the disk.
type Recorder func(Event)

// Discard is a Recorder that keeps nothing.
func Discard(Event) {}

// Process is who caused an event. PID and Comm are what its own side says; 0 and "": nothing is known.
type Process struct {
	UID  uint32 // the kernel's word
	PID  int
	Comm string
}

// Finder says who sends from local to remote over a network, which is "tcp" or "udp". For UDP, remote may be zero. It
// takes some milliseconds at most, and returns nil if it can't tell.
type Finder func(network string, local, remote netip.AddrPort) *Process

// Nobody is a Finder that finds nobody.
func Nobody(string, netip.AddrPort, netip.AddrPort) *Process { return nil }

// By returns e as caused by p, which may be nil.
func (e Event) By(p *Process) Event {
	if p != nil {
		e.UID, e.PID, e.Comm = &p.UID, p.PID, p.Comm
	}
	return e
}
