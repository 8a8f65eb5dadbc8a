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
	Rules    []ReportRule   `json:"rules"` // deny first, then in file order
	Settings ReportSettings `json:"settings"`
	Warnings []string       `json:"warnings"`
	Counts   Counts         `json:"counts"`
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

// ReportSettings is Settings in a Report, with the keys of policy.yaml.
type ReportSettings struct {
	Inbound  []Port            `json:"inbound"`
	User     string            `json:"user,omitempty"`
	Command  []string          `json:"command,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	SelfTest struct {
		Reach []string `json:"reach"`
		Block []string `json:"block"`
	} `json:"selftest"`
	DNS struct {
		Upstream []string `json:"upstream"`
		MaxTTL   string   `json:"max_ttl"`
		QPS      int      `json:"qps"`
	} `json:"dns"`
	Limits struct {
		AddrsPerName int `json:"addrs_per_name"`
		Leases       int `json:"leases"`
		NewNames     int `json:"new_names_per_wildcard_per_minute"`
	} `json:"limits"`
	Log struct {
		Stdout  bool  `json:"stdout"`
		MaxSize int64 `json:"max_size"`
		Files   int   `json:"files"`
	} `json:"log"`
	Session struct {
		Clipboard bool `json:"clipboard"`
	} `json:"session"`
	TLS struct {
		ECH string `json:"ech"`
	} `json:"tls"`
	UserNamespaces bool `json:"user_namespaces"`
}

// Report returns the merged policy in a form for machines.
func (p *Policy) Report() Report {
	out := Report{Rules: []ReportRule{}, Warnings: []string{}, Counts: p.Counts()}
	p.EachRule(func(r ReportRule) { out.Rules = append(out.Rules, r) })
	for _, w := range p.warnings {
		out.Warnings = append(out.Warnings, w.Error())
	}
	out.Settings = p.settings.report()
	return out
}

func (s *Settings) report() (to ReportSettings) {
	to.Inbound, to.User, to.Command, to.Env = orEmpty(s.Inbound), s.User, s.Command, s.Env
	to.SelfTest.Reach, to.SelfTest.Block = orEmpty(s.SelfTest.Reach), orEmpty(s.SelfTest.Block)
	to.DNS.Upstream, to.DNS.MaxTTL, to.DNS.QPS = orEmpty(s.DNS.Upstream), s.DNS.MaxTTL.String(), s.DNS.QPS
	to.Limits.AddrsPerName, to.Limits.Leases, to.Limits.NewNames = s.Limits.AddrsPerName, s.Limits.Leases, s.Limits.NewNamesPerWildcardPerMinute
	to.Session.Clipboard, to.UserNamespaces = s.Session.Clipboard, s.UserNamespaces
	if to.TLS.ECH = "pass"; s.TLS.RefuseECH {
		to.TLS.ECH = "refuse"
	}
	to.Log.Stdout, to.Log.MaxSize, to.Log.Files = s.Log.Stdout, s.Log.MaxSize, s.Log.Files
	return to
}

// orEmpty makes a list that is [] in JSON, not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
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
	settings, err := json.MarshalIndent(p.settings.report(), "# ", "  ")
	if err != nil {
		return fmt.Errorf("writing the settings: %w", err)
	}
	fmt.Fprintf(b, "\n# settings: %s\n", settings)
	return b.Flush()
}
