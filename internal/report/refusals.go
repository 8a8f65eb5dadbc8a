package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Refusal is what was refused, and which line of a policy would have allowed it. The agent chose the names: a line is a
// proposal, and no advice.
type Refusal struct {
	Kind   audit.Kind `json:"event"`
	What   string     `json:"what"` // the name, or the address if there was none
	IP     string     `json:"ip,omitempty"`
	Port   uint16     `json:"port,omitempty"`
	Proto  string     `json:"proto,omitempty"`
	Method string     `json:"method,omitempty"`
	Path   string     `json:"path,omitempty"`
	Route  string     `json:"route,omitempty"`
	Reason string     `json:"reason"` // of the first
	Rule   string     `json:"rule,omitempty"`
	Count  uint64     `json:"count"`
	LetOut uint64     `json:"let_out"` // of these, in monitor mode
	First  time.Time  `json:"first"`
	Last   time.Time  `json:"last"`
	By     few        `json:"by"`
	Line   string     `json:"line,omitempty"`          // that would have allowed it
	Meant  string     `json:"meant,omitempty"`         // of an address: the name that the agent had asked for
	ByRule bool       `json:"denied_by_rule"`          // so that no line would
	Since  string     `json:"allowed_since,omitempty"` // by a rule that has come later, such as a grant

	first audit.Event
}

func (r *Refusal) weight() uint64 { return r.Count }

// refusal takes in what was refused to the agent.
func (t *tally) refusal(e audit.Event) {
	n := 1 + e.Suppressed
	t.totals.Refused += n
	if e.Enforce != "" {
		t.totals.LetOut += n
	}
	at := e.IP // the name says it
	if e.Name != "" && e.Kind != audit.DNS {
		at = ""
	}
	key := strings.Join([]string{string(e.Kind), e.Name, at, fmt.Sprint(e.Port), e.Proto, e.Route, e.Method, e.Path}, "\x00")
	r := t.refusals.of(key, func() *Refusal {
		return &Refusal{
			Kind: e.Kind, What: cmp.Or(e.Name, e.IP, e.Route), IP: at, Port: e.Port, Proto: e.Proto, Method: e.Method, Path: e.Path,
			Route: e.Route, Reason: e.Reason, Rule: e.Rule, First: e.Time, first: e,
		}
	})
	r.Count += n
	if e.Enforce != "" {
		r.LetOut += n
	}
	r.By.add(cmp.Or(e.Comm, inspect.Asked(e)))
	r.Last = later(r.Last, e.Time)
}

// explain says of each refusal what would have allowed it.
func (t *tally) explain(list []Refusal) {
	for i := range list {
		r := &list[i]
		name := ""
		r.Line, name, r.ByRule = t.proposals.For(r.first)
		if name != r.What {
			r.Meant = name
		}
		if r.Line == "" && !r.ByRule {
			r.Since = t.allowedSince(r)
		}
	}
}

// allowedSince is the rule that allows by now what was refused.
func (t *tally) allowedSince(r *Refusal) string {
	if r.IP != "" || r.Method != "" {
		return ""
	}
	if r.Port != 0 {
		if d := t.policy.Decide(r.What, policy.Port{Proto: policy.TCP, Number: r.Port}); d.Allowed && d.Rule != nil {
			return d.Rule.Source.String()
		}
		return ""
	}
	if m := t.policy.Lookup(r.What); m.Allowed {
		return m.Rule.Source.String()
	}
	return ""
}
