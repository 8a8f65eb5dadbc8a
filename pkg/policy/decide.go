package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// The reasons of decisions.
const (
	reasonAllowed  = "allowed by the policy"
	reasonDenied   = "denied by the policy"
	reasonPort     = "the policy allows it on other ports only"
	reasonUnlisted = "not in the allowlist"
	reasonLoopback = "loopback is free inside the container, and never reached by way of the policy"
	reasonAddress  = "it is an address, and here connections pass by name"
	reasonNever    = "metadata, multicast and reserved addresses are never allowed"
	reasonBrokered = "reached through the broker alone"
	reasonPrivate  = "a private address is only allowed by an entry that names it or says private"
)

// Decide says whether name may be connected to on port. Deny rules win; among those that allow, the most specific is
// named. What is not a valid name, an address in particular, is not allowed.
func (p *Policy) Decide(name string, port Port) Decision {
	said := name
	name, problem := p.canonical(name)
	if problem != "" {
		if _, err := netip.ParseAddr(strings.Trim(said, "[]")); err == nil {
			problem = reasonAddress
		}
		return Decision{Reason: problem}
	}
	if r := p.denying(name, port); r != nil {
		return Decision{Rule: r, Reason: reasonDenied}
	}
	if r := p.allow.find(name, port); r != nil {
		if p.bound != nil && !r.routes {
			return p.bound.Decide(name, port)
		}
		return Decision{Allowed: true, Rule: r, Reason: reasonAllowed}
	}
	switch {
	case p.brokered(name, port):
		return Decision{Reason: reasonBrokered}
	case p.allow.first(name) != nil:
		return Decision{Reason: reasonPort}
	}
	return Decision{Reason: reasonUnlisted}
}

// Upgrades returns the rule by which HTTP with name may switch to another protocol on port; nil if there is none.
// Decide comes first: a name that is denied may have such a rule.
func (p *Policy) Upgrades(name string, port Port) *Rule {
	if port != HTTP {
		return nil
	}
	name, _ = p.canonical(name)
	return p.allow.which(name, func(r *Rule) bool { return r.Upgrade && r.has(port) })
}

// DecideAddr says whether a may be connected to on port by itself, without a name that was resolved to it.
func (p *Policy) DecideAddr(a netip.Addr, port Port) Decision {
	a = a.WithZone("").Unmap()
	class := Classify(a)
	switch class {
	case Never:
		return Decision{Reason: reasonNever}
	case Loopback:
		return Decision{Reason: reasonLoopback}
	}
	if r := p.deniedBlock(single(a), port); r != nil {
		return Decision{Rule: r, Reason: reasonDenied}
	}
	for _, x := range []*addrIndex{&p.allowAddr, &p.hostAddr} {
		if r := x.find(single(a), port); r != nil {
			return Decision{Allowed: true, Rule: r, Reason: reasonAllowed}
		}
	}
	if p.Broker != nil && p.brokered(a.String(), port) {
		return Decision{Reason: reasonBrokered}
	}
	if class == Private {
		return Decision{Reason: reasonPrivate}
	}
	return Decision{Reason: reasonUnlisted}
}

// denies returns the rule that denies all of r on a port, or nil.
func (p *Policy) denies(r *Rule, port Port) *Rule {
	switch {
	case r.Name == "":
		return p.deniedBlock(r.Prefix, port)
	case r.Wildcard:
		return (&index{below: p.deny.below}).find(r.Name, port)
	}
	return p.denying(r.Name, port)
}

// deniedBlock returns the rule that denies all of a block, or of what is wrapped in it.
func (p *Policy) deniedBlock(block netip.Prefix, port Port) *Rule {
	if p.denyAddr.groups == nil {
		return nil
	}
	for _, b := range append([]netip.Prefix{block}, embedded(block)...) {
		if r := p.denyAddr.find(b, port); r != nil {
			return r
		}
	}
	return nil
}

// Lookup says whether name may be resolved: whether any port of it is allowed.
func (p *Policy) Lookup(name string) Match {
	name, _ = p.canonical(name)
	return p.lookup(name)
}

// lookup is Lookup for a canonical name.
func (p *Policy) lookup(name string) Match {
	m := Match{Name: name, Rule: p.denying(name, Port{})}
	if m.Rule == nil {
		m.Rule = p.allow.first(name)
		if by := p.deniesSome(name); by != nil && m.Rule != nil && len(p.Ports(name)) == 0 {
			m.Rule = by
		}
		if p.bound != nil && len(p.Ports(name)) == 0 {
			m.Rule = p.bound.deniesSome(name)
		}
	}
	if m.Allowed = m.Rule != nil && !m.Rule.Deny; m.Allowed && m.Rule.Wildcard {
		m.Wildcard = m.Rule
	}
	return m
}

// Ports returns the ports on which name may be connected to, in order.
func (p *Policy) Ports(name string) []Port {
	name, _ = p.canonical(name)
	return p.allow.ports(name, func(port Port) bool {
		return p.denying(name, port) != nil || p.bound != nil && !p.Decide(name, port).Allowed
	})
}

// Admit returns the ports that name may open at a, an address that name was resolved to; nil if there is none. A
// private address is admitted for the ports that a rule of the name calls private or a rule names at that address, and
// for names of a single label or whose address the hosts file has.
func (p *Policy) Admit(name string, a netip.Addr) []Port {
	a = a.Unmap()
	class := Classify(a)
	name, problem := p.canonical(name)
	if problem != "" || a.Zone() != "" || class > Private {
		return nil
	}
	if at, stands := p.StandIn(name); stands {
		return p.allow.ports(name, func(port Port) bool { return a != at || p.denying(name, port) != nil || !p.Proxied(name, port) })
	}
	var agents []Port
	if p.bound != nil {
		agents = p.bound.Admit(name, a)
	}
	trusted := class == Public || !strings.Contains(name, ".") || slices.Contains(p.hosts[name], a)
	return p.allow.ports(name, func(port Port) bool {
		if p.bound != nil && !p.allow.find(name, port).routes {
			return !slices.Contains(agents, port)
		}
		return p.denying(name, port) != nil || p.deniedBlock(single(a), port) != nil ||
			!trusted && p.allowAddr.find(single(a), port) == nil &&
				p.allow.which(name, func(r *Rule) bool { return r.Private && r.has(port) }) == nil
	})
}

// Unlisted is why a name is refused that no entry allows.
func (p *Policy) Unlisted(name string) string {
	if p.brokered(name, HTTPS) || p.brokered(name, HTTP) {
		return reasonBrokered
	}
	return reasonUnlisted
}

// Refusal is what whoever asked for name is told in one line, by DNS and on port 80 alike: why, and where more is to be
// learned. by is the rule that denies it, nil if none allows it. What is not a plain name is not repeated.
func (p *Policy) Refusal(name string, by *Rule) string {
	why := p.Unlisted(name)
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		name = "NAME"
	}
	if by != nil {
		why = "denied by " + by.Source.String()
	}
	return why + ": agent-init explain " + name
}
