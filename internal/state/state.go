package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

type phase string

const (
	PhaseStarting phase = "starting" // sealed, not yet proved
	PhaseReady    phase = "ready"    // confined and proved
	PhaseFailed   phase = "failed"   // sealed, and the agent was not started
	PhaseEnded    phase = "ended"    // the keeper has gone; the rules stay
	PhaseOpen     phase = "unconfined"
)

// State is what the keeper publishes in status.json, for everyone to read.
type State struct {
	Version   int       `json:"version"`
	Phase     phase     `json:"phase"`
	Mode      string    `json:"mode"`              // run, up, sidecar, gateway
	Monitor   bool      `json:"monitor,omitempty"` // --mode monitor: what the policy denies is let through
	Reason    string    `json:"reason,omitempty"`
	Given     []string  `json:"given,omitempty"`   // what the command line adds to the policy's files
	Waiting   *Waiting  `json:"waiting,omitempty"` // the step of the start that takes longer than a second
	Code      int       `json:"code,omitempty"`    // exit code that goes with a failure
	Keeper    process   `json:"keeper"`
	Started   time.Time `json:"started,omitzero"`
	Published time.Time `json:"published,omitzero"`
	Agent     struct {  // whom the keeper runs commands as
		User string `json:"user"`
		UID  uint32 `json:"uid"`
	} `json:"agent"`
	Gateway  *Gateway `json:"gateway,omitempty"` // whose agents are elsewhere
	Firewall Firewall `json:"firewall"`
	Policy   struct { // in force
		policy.Counts
		UpstreamProxy string    `json:"upstream_proxy,omitempty"` // where it is, and what it is asked for
		Attempts      int       `json:"attempts"`                 // to load it, the first one included
		Loaded        time.Time `json:"loaded,omitzero"`
		Fault         string    `json:"fault,omitempty"`       // why the last reload was refused
		Phase         string    `json:"phase,omitempty"`       // setup, run, verify or sealed, where phases are configured
		PhaseFault    string    `json:"phase_fault,omitempty"` // why the phase is not what was asked for
	} `json:"policy"`
	Ceiling *Ceiling `json:"ceiling,omitempty"` // what the policy is below; none: nothing
	Guard   Guard    `json:"guard"`
	DNS     DNS      `json:"dns"`
	Leases  struct { // what is open by name
		Names    int `json:"names"`
		Elements int `json:"elements"`
	} `json:"leases"`
	Grants struct { // at run time
		Allowed  int    `json:"allowed"`
		Denied   int    `json:"denied"`
		Requests int    `json:"requests"`        // that wait for a person
		Saved    int    `json:"saved,omitempty"` // allowed and denied for good
		Fault    string `json:"fault,omitempty"` // why a denial, or the end of one, is not in force yet
	} `json:"grants"`
	Broker Broker `json:"broker,omitzero"` // empty without a route

	SelfTest *SelfTest `json:"selftest,omitempty"`
	Audit    Audit     `json:"audit"`
	Session  struct {  // empty if there is none
		Name     string `json:"name"`
		Socket   string `json:"socket"`
		OK       bool   `json:"ok"` // the server serves
		UID      uint32 `json:"uid"`
		Windows  int    `json:"windows"`
		Attached int    `json:"attached"` // clients
		Restarts int    `json:"restarts"`
	} `json:"session,omitzero"`
}

// Ceiling is what an organisation admits at most, and what it stopped.
type Ceiling struct {
	Stopped int           `json:"stopped"`         // entries and settings of the policy, also in part
	First   []string      `json:"first,omitempty"` // of them
	Signed  policy.Signed `json:"signed,omitzero"` // zero: it is not
}

// process tells a process from a later one of the same pid.
type process struct {
	PID int `json:"pid"`
	// Start is the process's start time in clock ticks (proc(5), field 22):
	// with it, a pid that was used again is told apart.
	Start uint64 `json:"start"`
}

// Gateway is where the agents of a gateway are, and where it answers them.
type Gateway struct {
	Interface string         `json:"interface"`
	Networks  []netip.Prefix `json:"networks"`
	Addresses []netip.Addr   `json:"addresses"` // of the gateway, in these networks
	Answer    string         `json:"answer"`    // names are answered with: real addresses, or the gateway's own
}

// Firewall is what holds the rules, and whether they are as planned.
type Firewall struct {
	Backend  string    `json:"backend"`
	Why      string    `json:"why"`               // it was chosen, and what it runs on
	Caveats  []string  `json:"caveats,omitempty"` // what it does less strictly than another would
	Reduced  string    `json:"reduced,omitempty"` // why less is held than elsewhere
	Verified time.Time `json:"verified,omitzero"`
	Repairs  int       `json:"repairs"`
	Fault    string    `json:"fault,omitempty"`
}

// Guard is how the guard does.
type Guard struct {
	OK       bool       `json:"ok"`
	UID      uint32     `json:"uid"`
	Restarts int        `json:"restarts"`
	Seen     time.Time  `json:"seen,omitzero"`
	Fault    string     `json:"fault,omitempty"`
	Stats    wire.Stats `json:"stats"`

	PassedOver []string `json:"passed_over,omitempty"` // DNS servers of resolv.conf that are not asked, and why
}

// DNS is whom the guard asks for names.
type DNS struct {
	Servers []string `json:"servers"`         // in this order
	Fault   string   `json:"fault,omitempty"` // why nothing of resolv.conf counts
	Needed  bool     `json:"needed"`          // the policy allows a name that only they know

	Answered time.Time `json:"answered,omitzero"` // when one did last
	By       string    `json:"by,omitempty"`      // which
	Silent   time.Time `json:"silent,omitzero"`   // since when none has answered any question
	Asked    uint64    `json:"asked"`             // questions to them in the last five minutes
	Failed   uint64    `json:"failed"`            // of those, that none has answered
}

// Hear takes in what the guard says of them.
func (d *DNS) Hear(m wire.Message) {
	at := func(nanos int64) (t time.Time) {
		if nanos != 0 {
			t = time.Unix(0, nanos)
		}
		return t
	}
	if s := m.Stats; s.Answered != 0 && len(m.Addrs) > 0 { // else a guard that has just begun
		d.Answered, d.By = at(s.Answered), netip.AddrPortFrom(m.Addrs[0], m.Port).String()
	}
	d.Silent, d.Asked, d.Failed = at(m.Stats.Silent), m.Stats.LatelyAsked, m.Stats.LatelyFailed
}

// Trouble says why names don't resolve, "" if they do.
func (d DNS) Trouble(now time.Time) string {
	switch {
	case len(d.Servers) == 0 && d.Needed:
		return "there is no DNS server to ask, names don't resolve: " + cmp.Or(d.Fault, "neither resolv.conf nor dns.upstream names one")
	case !d.Silent.IsZero():
		return fmt.Sprintf("no DNS server answers, names don't resolve: %s, since %s", strings.Join(d.Servers, ", "), text.Moment(d.Silent, now))
	}
	return ""
}

// words are for people.
func (d DNS) words(now time.Time) string {
	last := "; nothing was asked yet"
	if !d.Answered.IsZero() {
		last = fmt.Sprintf("; the last answer was %s's, %s", d.By, text.Ago(d.Answered))
	}
	switch {
	case d.Trouble(now) != "":
		return strings.TrimSuffix(d.Trouble(now)+last, "; nothing was asked yet")
	case len(d.Servers) == 0:
		return "nobody is asked, and no name needs it"
	case d.Failed > 0:
		last += fmt.Sprintf("; of %s in 5 minutes, %d without an answer", text.Counted(d.Asked, "question", "questions"), d.Failed)
	}
	return strings.Join(d.Servers, ", ") + last
}

// Broker is how the broker does, and what goes through it.
type Broker struct {
	OK       bool      `json:"ok"`   // it serves
	UID      uint32    `json:"uid"`  // 0: there is no present route, and no broker
	Port     uint16    `json:"port"` // of its listener on loopback
	Restarts int       `json:"restarts"`
	Seen     time.Time `json:"seen,omitzero"`
	Fault    string    `json:"fault,omitempty"`
	Routes   []Route   `json:"routes"`
}

// Route is one of the policy's routes. Its credential is told by where it is and by a fingerprint, never by itself.
type Route struct {
	Name        string `json:"name"`
	To          string `json:"to"`
	Present     bool   `json:"present"`
	Why         string `json:"why,omitempty"`         // it is absent
	ByName      bool   `json:"by_name,omitempty"`     // being absent: the agent reaches the host by its name
	Source      string `json:"source,omitempty"`      // file:PATH, env:NAME or none
	Fingerprint string `json:"fingerprint,omitempty"` // of the credential
	Fault       string `json:"fault,omitempty"`       // why a changed credential was not taken; the one before stays
	Requests    uint64 `json:"requests"`              // that went on
	Refusals    uint64 `json:"refusals"`              // that did not
	TokensIn    uint64 `json:"tokens_in"`             // as the API tells them
	TokensOut   uint64 `json:"tokens_out"`
	LastError   string `json:"last_error,omitempty"`
}

// SelfTest is how the last self-test went.
type SelfTest struct {
	OK       bool      `json:"ok"`
	Time     time.Time `json:"time,omitzero"`
	Checks   int       `json:"checks"`
	Failures []string  `json:"failures,omitempty"`
	Millis   int64     `json:"ms"`
}

// Audit is where the log is, and whether it can be written.
type Audit struct {
	File  string     `json:"file"`
	Head  audit.Head `json:"head,omitzero"` // its last line, when this was published
	Fault string     `json:"fault,omitempty"`
	Found uint64     `json:"found,omitempty"` // how often it was found to be changed by somebody else, since the start
}

// AttestEvery is how often the keeper holds the rules against the plan, and publishes.
const AttestEvery = 10 * time.Second

// stale is how old a publication may be before its keeper counts as hung: it publishes with every attestation.
const stale = 3*AttestEvery + 5*time.Second

// Healthy says whether the container is confined and all parts work; if not, why, in one line each.
func (s *State) Healthy(now time.Time) (ok bool, why []string) {
	bad := func(is bool, format string, args ...any) {
		if is {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	ready, age := s.Phase == PhaseReady, now.Sub(s.Published)
	gone := ready && !s.Keeper.Alive()
	switch s.Phase {
	case PhaseReady:
	case PhaseOpen:
		bad(true, "NOT CONFINED: started with --unsafe-no-firewall")
	case PhaseStarting:
		bad(true, "starting: sealed, not yet proved%s", s.Waiting.behind(now))
	default:
		bad(true, "%s: %s", s.Phase, s.Reason)
	}
	bad(s.Monitor, "NOT CONFINED: monitor mode lets through what the policy denies, and logs it")
	bad(gone, "the keeper is gone; the rules stay as they were")
	bad(!gone && age > stale, "the keeper has not reported for %s", text.Shortly(age))
	// How old it is can't be told then, until it reports again.
	bad(!gone && age < -stale, "the keeper has not reported since the clock was set back")
	bad(s.Firewall.Fault != "", "rules differ from the plan: %s", s.Firewall.Fault)
	bad(ready && !s.Guard.OK, "the guard is down, names are refused: %s", s.Guard.Fault)
	if why := s.DNS.Trouble(now); ready && s.Guard.OK {
		bad(why != "", "%s", why)
	}
	bad(ready && s.Broker.UID != 0 && !s.Broker.OK, "the broker is down, requests to it are refused: %s", s.Broker.Fault)
	bad(s.Policy.Fault != "", "the last reload was refused, the policy before it is in force: %s", text.FirstFault(s.Policy.Fault))
	bad(s.Policy.Phase == policy.Sealed, "sealed between two phases: nothing is allowed")
	bad(s.Policy.PhaseFault != "", "phase %s", text.FirstLine(s.Policy.PhaseFault))
	bad(s.Ceiling != nil && s.Ceiling.Signed.Expired(now), "the ceiling has expired, and the next start is refused: put a newer one there")
	bad(s.Audit.Fault != "", "events are being lost: %s", s.Audit.Fault)
	bad(s.Grants.Fault != "", "a denial, or the end of a grant, is not in force yet, and is tried again: %s", text.FirstLine(s.Grants.Fault))
	if s.SelfTest != nil {
		bad(!s.SelfTest.OK, "self-test failed: %s", strings.Join(s.SelfTest.Failures, "; "))
	}
	return len(why) == 0, why
}

// Self is this process.
func Self() process {
	start, _ := startTime(os.Getpid())
	return process{PID: os.Getpid(), Start: start}
}

// Alive says whether the process still runs.
func (p process) Alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// startTime reads field 22 of /proc/PID/stat, of a process that has not ended: one that nobody has reaped still has
// the file. The command name before it may hold anything, so the count starts behind its closing bracket.
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	i := strings.LastIndexByte(string(data), ')')
	fields := strings.Fields(string(data[i+1:]))
	if i < 0 || len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: unexpected form", pid)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	var start uint64
	_, err = fmt.Sscan(fields[19], &start)
	return start, err
}

// SizeOf is how much a policy holds.
func SizeOf(c policy.Counts) string {
	return fmt.Sprintf("%s, %s, %s, %d denied", text.Counted(c.Names, "name", "names"), text.Counted(c.Wildcards, "wildcard", "wildcards"), text.Counted(c.Addresses, "address", "addresses"), c.Denied)
}

// Form is the backend as people should see it.
func (f Firewall) Form() string {
	if f.Reduced == "" {
		return f.Backend
	}
	return fmt.Sprintf("%s (reduced: %s)", f.Backend, f.Reduced)
}

// Open says in a word how the agent is let out, "" if it is confined.
func (s *State) Open() string {
	switch {
	case s.Phase == PhaseOpen:
		return "no firewall"
	case s.Monitor:
		return "monitor"
	}
	return ""
}
