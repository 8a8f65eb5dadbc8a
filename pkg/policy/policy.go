package policy

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	"github.com/agent-init/agent-init/pkg/route"
)

// File is one policy file. A Name that ends in .yaml, .yml or .json is read as YAML, any other as a list of entries.
type File struct {
	Name string // as errors and rules cite it
	Data []byte
}

// Equal says whether two files have the same name and content.
func (f File) Equal(g File) bool { return f.Name == g.Name && bytes.Equal(f.Data, g.Data) }

// Bundle is the raw content of a policy, in the order in which it counts. It can be handed to another process as JSON.
type Bundle struct {
	Files    []File
	Ceiling  []File  `json:",omitempty"` // of the organisation; nil if there is none
	Signed   Signed  `json:",omitzero"`  // what its signature says
	Hosts    []byte  // the content of /etc/hosts, nil if it is not to be trusted
	Resolv   Resolv  `json:",omitzero"` // what resolv.conf says
	Warnings []Error // found while reading, repeated by Policy.Warnings

	Absent []string `json:",omitempty"` // optional routes of the broker whose credential is not there

	Phase  string            `json:",omitempty"` // that it is in: Setup, Run, Verify or Sealed; "" is Run
	Phases map[string][]File `json:",omitempty"` // what Setup and Verify have behind Files, of those that there are

	Known map[string][]byte `json:",omitempty"` // SHA-256 by name, of lists that are here without their Data, see Policy.Brief
}

// Policy is a parsed policy, immutable and safe for concurrent use. What it holds and returns must not be modified.
type Policy struct {
	Settings Settings
	Resolv   Resolv  // what resolv.conf says
	Warnings []Error // what is valid but probably not meant

	// Static are the allowed addresses that need no name to be resolved: the entries that name addresses, and what the
	// hosts file has for allowed names. Denied and NeverPrefixes overrule them.
	Static []Static
	Denied []Static // in every form in which an entry by address would open them

	Names    []*Rule // one for each exact name that is allowed, in file order
	Required []*Rule // what the self-test must reach, also what another rule denies: names and single addresses
	Proxies  []*Rule // those that call a name an HTTP proxy. None is a wildcard

	// Broker is what the broker may reach, with the same settings: the hosts of its routes, and what the agent may of the
	// inspected names. nil without either.
	Broker       *Policy
	AbsentRoutes []string // optional ones whose credential is not there, in file order

	rules  []*Rule   // in file order
	routes []written // likewise
	files  int

	allow, deny index
	allowAddr   addrIndex
	denyAddr    addrIndex
	hostAddr    addrIndex // what the hosts file has for allowed names
	hosts       map[string][]netip.Addr

	bound *Policy // of Broker: the agent's, which binds it but for the hosts of routes

	ceiling *Ceiling // what all of it is below; nil if it is below none
	cuts    []Cut
	missed  []*Rule // required, and above the ceiling
	written []*Rule // as files have them, if there is a ceiling

	lists map[string]entryList // what was read from each list of entries, for Next
}

// Decision is the answer to "may this be connected to?".
type Decision struct {
	Allowed bool
	Rule    *Rule  // what decided; nil if nothing matched
	Reason  string // for people, lower case
}

// Match is the answer to "may this name be resolved?".
type Match struct {
	Name     string // canonical; "" if it is not a valid name
	Allowed  bool   // on at least one port
	Rule     *Rule  // what decided; nil if nothing matched
	Wildcard *Rule  // the rule, if only a wildcard allows the name
}

// Static is an address block and port that needs no name to be resolved.
type Static struct {
	Prefix netip.Prefix
	Port   Port // zero, in denied ones only: every port and protocol
	Rule   *Rule
}

// Counts says how much is in a policy.
type Counts struct {
	Files     int `json:"files"`
	Rules     int `json:"rules"`               // of every kind, duplicates included
	Names     int `json:"names"`               // different exact names that are allowed
	Wildcards int `json:"wildcards"`           // different wildcards that are allowed
	Addresses int `json:"addresses"`           // rules that allow addresses
	Denied    int `json:"denied"`              // rules that deny
	Required  int `json:"required"`            // what the self-test must reach
	Direct    int `json:"direct,omitempty"`    // rules by which names pass by the name gate
	Inspected int `json:"inspected,omitempty"` // names, by port, that the broker looks into
}

// Parse reads a bundle. Presets are the files NAME.txt of presets, which may be nil. An empty bundle is a valid policy,
// which allows nothing. The error is an ErrorList with everything that is wrong in any file, or a *CeilingError.
func Parse(b *Bundle, presets fs.FS) (*Policy, error) { return new(Policy).Next(b, presets) }

// Next is Parse of a bundle in the place of the one that p was read from. Lists of entries that are the same take no time.
func (p *Policy) Next(b *Bundle, presets fs.FS) (*Policy, error) {
	return p.NextWith(b, presets, func([]PlacedRoute) ([]string, ErrorList) { return b.Absent, nil })
}

// PlacedRoute is a route of the broker, and where it says where its credential is, or is written.
type PlacedRoute struct {
	route.Route
	Source Source
}

// NextWith is Next for who has the credentials: absent is told all routes, and says the names of the optional ones
// whose credential is not there, and what is wrong with others. The names are b.Absent from then on.
func (p *Policy) NextWith(b *Bundle, presets fs.FS, absent func([]PlacedRoute) ([]string, ErrorList)) (*Policy, error) {
	ceiling, err := parseCeiling(b.Ceiling, presets, parseHosts(string(b.Hosts)))
	if err != nil {
		return nil, err
	}
	ps := newParser(presets)
	ps.before, ps.known, ps.resolv = p.lists, b.Known, b.Resolv
	files := ps.phase(b)
	if ps.errs.list == nil {
		var routes []PlacedRoute
		for _, w := range ps.routes {
			routes = append(routes, PlacedRoute{w.Route, w.place("credential")})
		}
		var wrong ErrorList
		b.Absent, wrong = absent(routes)
		ps.absent = b.Absent
		for _, e := range wrong {
			ps.errs.add(e)
		}
	}
	if b.Phase == Sealed {
		ps.rules, ps.routes = nil, nil
	}
	next, err := ps.policy(files, b.Hosts, ceiling)
	if err != nil {
		return nil, err
	}
	next.lists = ps.lists
	for _, w := range b.Warnings {
		ps.warns.add(w)
	}
	next.warn(ps)
	next.Warnings = ps.warns.list
	return next, nil
}

// policy is what was read, below a ceiling, or what is wrong with it. No policy is made in another way.
func (ps *parser) policy(files int, hosts []byte, ceiling *Ceiling) (*Policy, error) {
	if ps.errs.list != nil {
		return nil, ps.errs.list
	}
	p := &Policy{rules: ps.rules, files: files, Settings: ps.settings, Resolv: ps.resolv, hosts: parseHosts(string(hosts))}
	p.routed(ps)
	p.complete(ps)
	if ps.errs.list == nil && ceiling != nil {
		p = p.below(ceiling, ps)
	}
	if ps.errs.list != nil {
		return nil, ps.errs.list
	}
	return p, nil
}

// complete makes all else of the rules, routes and settings.
func (p *Policy) complete(ps *parser) {
	p.inspect(ps)
	p.index()
	p.brokers(ps)
	p.unambiguous(ps)
	p.upstreamProxied(ps)
	p.unmixed(ps)
}

// index makes the rules quick to find.
func (p *Policy) index() {
	p.allow.exact = make(groups[string], len(p.rules))
	for _, r := range p.rules {
		switch {
		case r.Name != "" && r.Deny && r.Request != nil:
		case r.Name != "" && r.Deny:
			p.deny.add(r)
		case r.Name != "":
			p.allow.keep(r)
			if r.Connect {
				p.Proxies = append(p.Proxies, r)
			}
		case r.Deny:
			p.denyAddr.add(r.Prefix, r)
			for _, port := range r.Ports {
				p.Denied = append(p.Denied, Static{r.Prefix, port, r})
			}
			if r.Ports == nil {
				p.Denied = append(p.Denied, Static{r.Prefix, Port{}, r})
			}
		default:
			p.allowAddr.add(r.Prefix, r)
			for _, port := range r.Ports {
				p.Static = append(p.Static, Static{r.Prefix, port, r})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		for _, a := range p.hosts[name] {
			for _, port := range p.Admit(name, a) {
				r := p.allow.find(name, port)
				if p.bound == nil && p.Way(name, port) == Inspected { // where nothing would lead to the broker: see warn
					continue
				}
				p.hostAddr.add(single(a), r)
				p.Static = append(p.Static, Static{single(a), port, r})
			}
		}
	}
	p.denyWrapped()
	p.indexNames()
}

// denyWrapped denies the IPv4 addresses of deny rules wrapped in IPv6 too, where an entry by address opens a block of
// such: those are judged by the kernel, which can't look inside.
func (p *Policy) denyWrapped() {
	plain := p.Denied
	for _, w := range wrappers {
		if !slices.ContainsFunc(p.Static, func(s Static) bool { return s.Prefix.Overlaps(w) }) {
			continue
		}
		for _, d := range plain {
			if d.Prefix.Addr().Is4() {
				p.Denied = append(p.Denied, Static{wrap(w, d.Prefix), d.Port, d.Rule})
			}
		}
	}
	for _, s := range p.Static { // of a site's NAT64, only single addresses are
		if siteNAT64.Overlaps(s.Prefix) {
			if by := p.deniedBlock(single(s.Prefix.Addr()), s.Port); by != nil {
				p.Denied = append(p.Denied, Static{s.Prefix, s.Port, by})
			}
		}
	}
}

// indexNames lists what is resolved ahead and what must be reached.
func (p *Policy) indexNames() {
	needed := map[string]bool{}
	for _, r := range p.rules {
		if r.Deny {
			continue
		}
		first := r.Name != "" && !r.Wildcard && p.allow.exact[r.Name][0] == r
		if first && p.lookup(r.Name).Allowed {
			p.Names = append(p.Names, r)
		}
		if r.Required && !needed[r.String()] {
			needed[r.String()] = true
			p.Required = append(p.Required, r)
		}
	}
}

// warn notes what contradicts itself, and what the ceiling stopped.
func (p *Policy) warn(ps *parser) {
	p.warnOfCuts(ps)
	for _, r := range p.rules {
		// To take a part out of a preset is what deny is for.
		if r.Deny || r.Preset != "" && !r.Required {
			continue
		}
		if by := p.overruled(r); by != nil {
			ps.warns.add(Error{Source: r.Source, Text: r.Text, Message: fmt.Sprintf("has no effect: %v at %v denies it", by, by.Source)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		for _, port := range p.Ports(name) {
			if r := p.allow.which(name, func(r *Rule) bool { return r.Inspects() && r.has(port) }); r != nil {
				ps.warns.add(Error{Source: r.Source, Text: name, Message: fmt.Sprintf("the hosts file has addresses for it, which are closed on port %v: "+
					"only what DNS has answered is led to the broker", port)})
			}
		}
	}
	for _, i := range p.Settings.Inspected {
		if r := p.besidePlain(i); i.Port == HTTPS.Number && r != nil {
			ps.warns.add(Error{Source: r.Source, Text: r.Text, Message: "its requests are judged on port 443, and not on port 80: a server may take the same ones there"})
		}
	}
	probes := func(key string, targets []string, allowed bool, verb string) {
		for _, target := range targets {
			if p.allowsTarget(target) == allowed {
				ps.warns.add(Error{Source: ps.set[key+" "+target], Text: target,
					Message: key + " names what the policy " + verb + ": the self-test will fail"})
			}
		}
	}
	probes("selftest.reach", p.Settings.SelfTest.Reach, false, "does not allow")
	probes("selftest.block", p.Settings.SelfTest.Block, true, "allows")
}

// besidePlain returns the rule by which all of an inspected name is reached on port 80 without a look at requests, or nil.
func (p *Policy) besidePlain(i route.Inspected) *Rule {
	if i.Wildcard || p.Way(i.Name, HTTP) != Gated || !p.Decide(i.Name, HTTP).Allowed {
		return nil
	}
	return p.allow.find(i.Name, HTTP)
}

// overruled returns a rule that denies the last port that r allows, if all of them are denied.
func (p *Policy) overruled(r *Rule) (by *Rule) {
	for _, port := range r.Ports {
		if by = p.denies(r, port); by == nil {
			return nil
		}
	}
	return by
}

// allowsTarget decides about a "host:port" of the settings.
func (p *Policy) allowsTarget(target string) bool {
	var r Rule
	switch f := parseTarget(target, &r); {
	case f != nil:
		return false
	case r.Name == "":
		return p.DecideAddr(r.Prefix.Addr(), r.Ports[0]).Allowed
	}
	return p.Decide(r.Name, r.Ports[0]).Allowed
}

// Hosts returns the addresses that the hosts file has for name, whether or not the policy admits them.
func (p *Policy) Hosts(name string) []netip.Addr {
	name, _ = p.canonical(name)
	return p.hosts[name]
}

// Counts returns how much is in the policy.
func (p *Policy) Counts() Counts {
	c := Counts{Files: p.files, Rules: len(p.rules), Names: len(p.Names), Wildcards: len(p.allow.below), Required: len(p.Required)}
	c.Inspected = len(p.Settings.Inspected)
	for _, r := range p.rules {
		switch {
		case r.Deny:
			c.Denied++
		case r.Name == "":
			c.Addresses++
		case r.Flags.Direct && slices.ContainsFunc(r.Ports, func(port Port) bool { return p.Direct(r.Name, port) == r }):
			c.Direct++
		}
	}
	return c
}
