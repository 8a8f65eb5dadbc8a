package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// EachRule calls do with every rule, deny first, then in file order.
func (p *Policy) EachRule(do func(ReportRule)) {
	p.eachDenyFirst(func(r *Rule) {
		do(ReportRule{
			Rule: r.String(), Source: r.Source.String(), Preset: r.Preset, Deny: r.Deny,
			Target: r.Target(), Ports: r.Ports, Private: r.Private, Required: r.Required,
			Upgrade: r.Upgrade, Connect: r.Connect,
		})
	})
}

// Rebuild returns a policy that decides as the one whose EachRule gave rules,
// and cites the same places. hosts is the content of a hosts file, or nil. Of a
// rule only Rule, Source and Preset count; settings are the defaults.
func Rebuild(rules []ReportRule, hosts []byte) (*Policy, error) {
	ps := newParser(nil)
	for _, from := range rules {
		r := ps.slot()
		*r = Rule{Source: sourceOf(from.Source), Text: from.Rule, Preset: from.Preset}
		preset, f := parseEntry(from.Rule, r)
		if f == nil && preset != "" {
			return nil, fmt.Errorf("%q is no rule", from.Rule)
		}
		if f != nil {
			return nil, fmt.Errorf("%q: %s", from.Rule, f.message)
		}
		ps.rule(r)
	}
	if errs := ps.errs.all(); errs != nil {
		return nil, errs
	}
	p := &Policy{rules: ps.rules, settings: ps.settings, hosts: parseHosts(string(hosts))}
	p.index()
	return p, nil
}

// sourceOf reads FILE:LINE.
func sourceOf(s string) Source {
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if n, err := strconv.Atoi(s[i+1:]); err == nil {
			return Source{File: s[:i], Line: n}
		}
	}
	return Source{File: s}
}
