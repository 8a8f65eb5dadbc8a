package report

import (
	"strings"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/pkg/policy"
)

const maxEntries = 2000

// Policy is what is allowed and denied, and how often each entry has decided something.
type Policy struct {
	Dir     string        `json:"dir"`
	Phase   string        `json:"phase,omitempty"` // of an evaluation
	Counts  policy.Counts `json:"counts"`
	Inbound []uint16      `json:"inbound"` // TCP ports that may be connected to from outside
	Entries []Entry       `json:"entries"`
	More    int           `json:"more,omitempty"` // that are left out
	Unused  int           `json:"unused"`         // entries that allow, and have decided nothing
}

// Entry is one line of the policy.
type Entry struct {
	Rule      string `json:"rule"`
	Source    string `json:"source"` // file:line
	Deny      bool   `json:"deny"`
	Rules     int    `json:"rules"`     // that it stands for: a preset has many
	Used      uint64 `json:"used"`      // events that it has decided
	Open      int    `json:"open"`      // connections that it may have let out, and which are open now
	Traceless bool   `json:"traceless"` // the log has nothing of what passes by it
}

// Unused says whether an entry allows what nobody has used. What was granted for a time ends by itself.
func (e Entry) Unused() bool {
	return e.Used == 0 && e.Open == 0 && !e.Deny && !e.Traceless && !strings.HasPrefix(e.Source, grant.Prefix)
}

// policyOf lists the policy, with what the log has of each entry.
func (t *tally) policyOf(s *source) *Policy {
	if s.policy == nil {
		return nil
	}
	out := &Policy{Dir: s.policyDir, Counts: s.policy.Counts(), Inbound: append([]uint16{}, s.inbound...), Entries: []Entry{}}
	if s.state != nil {
		out.Phase = s.state.Policy.Phase
	}
	at := map[string]int{}
	for rule := range s.policy.Rules() {
		source := rule.Source.String()
		traceless := t.traceless(rule)
		if i, have := at[source+rule.Preset]; have && rule.Preset != "" {
			if i < len(out.Entries) {
				out.Entries[i].Rules++
				out.Entries[i].Traceless = out.Entries[i].Traceless || traceless
			}
			continue
		}
		e := Entry{Rule: rule.String(), Source: source, Deny: rule.Deny, Rules: 1, Used: t.hits[source], Open: t.open[source], Traceless: traceless}
		if rule.Preset != "" {
			e.Rule = "@" + rule.Preset
		}
		at[source+rule.Preset] = len(out.Entries)
		if len(out.Entries) >= maxEntries {
			out.More++
			continue
		}
		out.Entries = append(out.Entries, e)
	}
	for _, e := range out.Entries {
		if e.Unused() {
			out.Unused++
		}
	}
	return out
}

// traceless says whether an entry may be used without the log having a line of it: packets to its addresses pass the
// kernel, and a name's look-up may be answered from memory.
func (t *tally) traceless(rule *policy.Rule) bool {
	if rule.Deny || rule.Name == "" {
		return !rule.Deny
	}
	ports := rule.Ports
	if len(ports) == 0 {
		ports = t.policy.Ports(rule.Name)
	}
	for _, port := range ports {
		if t.policy.Way(rule.Name, port) == policy.ByAddress {
			return true
		}
	}
	return false
}
