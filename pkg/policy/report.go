package policy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Report is a policy in a form for machines. The names of its fields in JSON
// are part of the public contract.
type Report struct {
	Rules    []ReportRule `json:"rules"` // deny first, then in file order
	Settings Settings     `json:"settings"`
	Warnings []string     `json:"warnings"`
	Counts   Counts       `json:"counts"`
}

// ReportRule is a Rule in a Report.
type ReportRule struct {
	Rule     string `json:"rule"` // as a line of a policy file
	Source   string `json:"source"`
	Preset   string `json:"preset,omitempty"`
	Deny     bool   `json:"deny,omitempty"`
	Target   string `json:"target"`
	Ports    []Port `json:"ports,omitempty"` // none: every port
	Private  bool   `json:"private,omitempty"`
	Required bool   `json:"required,omitempty"`
	Upgrade  bool   `json:"upgrade,omitempty"`
	Connect  bool   `json:"connect,omitempty"`
}

// Report returns the merged policy in a form for machines.
func (p *Policy) Report() Report {
	out := Report{Rules: []ReportRule{}, Warnings: []string{}, Counts: p.Counts()}
	p.EachRule(func(r ReportRule) { out.Rules = append(out.Rules, r) })
	for _, w := range p.warnings {
		out.Warnings = append(out.Warnings, w.Error())
	}
	out.Settings = p.settings
	return out
}

func (p *Policy) eachDenyFirst(do func(*Rule)) {
	for _, deny := range []bool{true, false} {
		for _, r := range p.rules {
			if r.Deny == deny {
				do(r)
			}
		}
	}
}

// WriteEffective writes the merged policy as a list of entries: deny first,
// then in file order, each with where it comes from as a comment. The settings
// follow as comments. What it writes can be read as an allowlist, which has
// the same rules.
func (p *Policy) WriteEffective(w io.Writer) error {
	b := bufio.NewWriter(w)
	p.eachDenyFirst(func(r *Rule) {
		fmt.Fprintf(b, "%-44s # %v", r, r.Source)
		if r.Preset != "" {
			fmt.Fprintf(b, " @%s", r.Preset)
		}
		b.WriteByte('\n')
	})
	settings, err := json.MarshalIndent(p.settings, "# ", "  ")
	if err != nil {
		return fmt.Errorf("writing the settings: %w", err)
	}
	fmt.Fprintf(b, "\n# settings: %s\n", settings)
	return b.Flush()
}
