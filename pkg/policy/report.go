package policy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/agent-init/agent-init/pkg/route"
)

// Report is a policy in a form for machines. The names of its fields in JSON are part of the public contract.
type Report struct {
	Rules    []ReportRule `json:"rules"` // deny first, then in file order
	Settings Settings     `json:"settings"`
	Warnings []string     `json:"warnings"`
	Counts   Counts       `json:"counts"`
}

// ReportRule is a Rule in a Report.
type ReportRule struct {
	Entry
	Deny   bool   `json:"deny,omitempty"`
	Target string `json:"target"`
	Ports  []Port `json:"ports,omitempty"` // none: every port
	Flags
	Request *route.Request `json:"request,omitempty"` // which requests it is about; none: connections
}

// Entry is a rule in a form that Rebuild reads.
type Entry struct {
	Rule   string `json:"rule"` // as a line of a policy file
	Source string `json:"source"`
	Preset string `json:"preset,omitempty"`
}

// Entry returns r so that Rebuild reads it.
func (r *Rule) Entry() Entry { return Entry{r.String(), r.Source.String(), r.Preset} }

// Report returns the merged policy in a form for machines.
func (p *Policy) Report() Report {
	out := Report{Rules: []ReportRule{}, Settings: p.Settings, Warnings: []string{}, Counts: p.Counts()}
	for r := range p.Rules() {
		out.Rules = append(out.Rules, ReportRule{r.Entry(), r.Deny, r.Target(), r.Ports, r.Flags, r.Request})
	}
	for _, w := range p.Warnings {
		out.Warnings = append(out.Warnings, w.Error())
	}
	return out
}

// Rules returns every rule, deny first, then in file order.
func (p *Policy) Rules() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for _, deny := range []bool{true, false} {
			for _, r := range p.rules {
				if r.Deny == deny && !yield(r) {
					return
				}
			}
		}
	}
}

// WriteEffective writes the policy as an allowlist that means the same, each entry with where it comes from, deny first
// and then in file order. The settings, and what the ceiling
// stopped, follow as comments.
func (p *Policy) WriteEffective(w io.Writer) error {
	b := bufio.NewWriter(w)
	for r := range p.Rules() {
		fmt.Fprintf(b, "%-44s # %v", r, r.Source)
		if r.Preset != "" {
			fmt.Fprintf(b, " @%s", r.Preset)
		}
		b.WriteByte('\n')
	}
	for _, c := range p.cuts {
		fmt.Fprintf(b, "# %-42s # %v, %v\n", c.Text, c.Source, c)
	}
	settings, err := json.MarshalIndent(p.Settings, "# ", "  ")
	if err != nil {
		return fmt.Errorf("writing the settings: %w", err)
	}
	fmt.Fprintf(b, "\n# settings: %s\n", settings)
	return b.Flush()
}

// Written returns every rule as files have it, which a ceiling may have narrowed, in file order.
func (p *Policy) Written() []*Rule {
	if p.ceiling != nil {
		return p.written
	}
	return p.rules
}

// Below is the ceiling of a policy in a form that Rebuild reads: its entries, without its settings and routes.
type Below struct {
	Entries string  `json:"entries,omitempty"` // any, none, or those of the list
	Rules   []Entry `json:"rules"`
}

// Below returns the ceiling so that Rebuild reads it; nil without one.
func (p *Policy) Below() *Below {
	if p.ceiling == nil {
		return nil
	}
	out := &Below{Entries: p.ceiling.entries, Rules: []Entry{}}
	for _, r := range p.ceiling.policy.rules {
		out.Rules = append(out.Rules, r.Entry())
	}
	return out
}

// Rebuild returns a policy that decides as the one with these rules, as written, and routes below a ceiling, and cites the
// same places. Settings are defaults, but for the routes
// and the upstream proxy.
func Rebuild(rules []Entry, hosts []byte, resolv Resolv, routes []RouteEntry, proxy route.Proxy, below *Below) (*Policy, error) {
	ceiling, err := below.rebuilt(hosts)
	if err != nil {
		return nil, err
	}
	ps := newParser(nil)
	ps.resolv, ps.settings.UpstreamProxy = resolv, proxy
	for _, r := range routes {
		w, f := rebuilt(r)
		if f != nil {
			ps.fault(w.at[""], f)
			continue
		}
		ps.routes = append(ps.routes, w)
		if r.Absent {
			ps.absent = append(ps.absent, r.Name)
		}
	}
	for _, e := range rules {
		ps.entry(&Rule{Source: Source{File: e.Source}, Text: e.Rule, Preset: e.Preset})
	}
	return ps.policy(0, hosts, ceiling)
}

func (b *Below) rebuilt(hosts []byte) (*Ceiling, error) {
	if b == nil {
		return nil, nil
	}
	ps, c := newParser(nil), &Ceiling{entries: b.Entries, rebuilt: true}
	for _, e := range b.Rules {
		ps.entry(&Rule{Source: Source{File: e.Source}, Text: e.Rule, Preset: e.Preset})
	}
	return c, c.finish(ps, parseHosts(string(hosts)))
}
