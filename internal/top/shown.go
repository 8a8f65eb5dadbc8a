package top

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Shown is one frame as data. The names of its fields in JSON are public.
type Shown struct {
	Version  int       `json:"version"`
	Time     time.Time `json:"time"`
	State    string    `json:"state"` // see state.State.Word
	Healthy  bool      `json:"healthy"`
	Why      []string  `json:"why"` // it is not
	Operator bool      `json:"operator"`
	Unseen   []string  `json:"unseen"` // what can't be seen from here

	Connections []Connection  `json:"connections"`
	Inside      int           `json:"inside"` // connections that stay in the container, and are not listed
	More        int           `json:"more"`   // that are left out
	Counted     bool          `json:"counted"`
	Requests    []grant.Grant `json:"requests"` // that wait
	Refused     []Name        `json:"refused"`
	Refusals    uint64        `json:"refusals"`            // since agent-init started, as far as the log was read
	PerSecond   float64       `json:"refusals_per_second"` // lately
	Asked       []Name        `json:"asked"`               // names
	Ending      []Lease       `json:"ending"`              // leases, those that end first
	Parts       []Part        `json:"parts"`               // of agent-init
	Status      *state.State  `json:"-"`
}

// Connection is one that is open.
type Connection struct {
	Name    string         `json:"name,omitempty"`
	Others  int            `json:"others,omitempty"` // names that it may be to as well
	Local   netip.AddrPort `json:"local"`
	Remote  netip.AddrPort `json:"remote"`
	Proto   string         `json:"proto"`
	Way     way            `json:"way"`
	Opening bool           `json:"opening,omitempty"`
	UID     uint32         `json:"uid"`
	PID     int            `json:"pid,omitempty"`
	Process string         `json:"process,omitempty"`
	Out     uint64         `json:"bytes_out"`
	In      uint64         `json:"bytes_in"`
	OutRate float64        `json:"out_per_second"`
	InRate  float64        `json:"in_per_second"`
	Since   time.Time      `json:"since"` // when it was seen first
	Older   bool           `json:"older,omitempty"`

	id string
}

// Name is what was asked for or refused, often or once.
type Name struct {
	Name    string    `json:"name"` // or address and port
	Count   uint64    `json:"count"`
	Allowed bool      `json:"allowed"`
	Last    time.Time `json:"last"`
	Reason  string    `json:"reason,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Process string    `json:"process,omitempty"`
	Line    string    `json:"line,omitempty"` // the entry that would allow it
}

// Lease is an address that closes before long, unless it is asked for again.
type Lease struct {
	Name    string     `json:"name"`
	Addr    netip.Addr `json:"addr"`
	Ports   string     `json:"ports"`
	Expires time.Time  `json:"expires"`
}

// maxEnding is how many leases are shown.
const maxEnding = 64

// Show says what there is to be shown.
func (m *Model) Show() Shown {
	s := Shown{Version: 1, Time: m.facts.At, State: m.word(), Operator: m.facts.Operator, Unseen: append([]string{}, m.facts.Unseen...), Parts: append([]Part{}, m.facts.Parts...),
		Refusals: m.total, Status: m.facts.State, Requests: []grant.Grant{}, Connections: []Connection{}, Ending: []Lease{}}
	s.Healthy, s.Why = m.health()
	s.Why = append([]string{}, s.Why...)
	if seconds := m.paused.Seconds(); seconds > 0 {
		s.PerSecond = float64(m.total-m.before) / seconds
	}
	for _, g := range m.facts.Grants {
		if g.Kind == grant.Request && g.Outcome == "" {
			s.Requests = append(s.Requests, g)
		}
	}
	m.connections(&s)
	s.Refused, s.Asked = m.named(m.refused, true), m.named(m.asked, false)
	if m.of != nil {
		for _, n := range m.of.Names {
			for _, a := range n.Addrs {
				if a.Expires.After(s.Time) {
					s.Ending = append(s.Ending, Lease{n.Name, a.Addr, a.On, a.Expires})
				}
			}
		}
	}
	slices.SortFunc(s.Ending, func(a, b Lease) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	s.Ending = s.Ending[:min(len(s.Ending), maxEnding)]
	return s
}

func (m *Model) connections(s *Shown) {
	table := m.facts.Sockets
	if table == nil {
		return
	}
	s.More, s.Counted = table.More, table.Counted
	s.Connections = make([]Connection, 0, len(m.conns))
	for i := range table.Conns {
		switch known := m.conns[keyOf(&table.Conns[i])]; {
		case known == nil: // agent-init's own
		case known.Way == inside:
			s.Inside++
		default:
			s.Connections = append(s.Connections, known.Connection)
		}
	}
}

func (m *Model) named(f folded, refused bool) []Name {
	out := make([]Name, 0, len(f))
	for _, key := range f.newest() {
		e := &f[key].last
		n := Name{Name: key, Count: f[key].count, Allowed: e.Verdict == "allow", Last: e.Time, Reason: e.Reason, PID: e.PID, Process: e.Comm}
		if refused {
			n.Line = f[key].allowing(m.facts.Policy)
		}
		out = append(out, n)
	}
	return out
}

// allowing is the entry that would allow what was refused, "" if none would.
func (f *fold) allowing(p *policy.Policy) string {
	if p == nil || p == f.judged {
		return f.line
	}
	e := &f.last
	port := policy.HTTPS
	if e.Port != 0 {
		port.Number = e.Port
	}
	if e.Proto == "udp" && e.Kind != audit.DNS {
		port.Proto = policy.UDP
	}
	f.judged, f.line = p, ""
	if a, err := netip.ParseAddr(e.IP); e.Name == "" && err == nil && e.Port != 0 {
		f.line = p.LineForAddr(a, port)
	} else if e.Kind == audit.DNS {
		f.line = p.LineToResolve(e.Name)
	} else if e.Name != "" {
		f.line = p.LineFor(e.Name, netip.Addr{}, port)
	}
	return f.line
}
