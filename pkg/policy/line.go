package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// A proposal is an entry that a person may add, since it would have allowed what was refused. Each is tried before it is
// made: beside the entries that there are about the same name, below the ceiling, and with the same question.

// Canary is the name that Firefox asks for to find out whether it may send its DNS elsewhere. NXDOMAIN means no.
const Canary = "use-application-dns.net"

// Reverse says whether a canonical name stands for an address.
func Reverse(name string) bool {
	return strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa")
}

// OwnName says whether a canonical name is this container's own (RFC 6761, section 6.3).
func OwnName(name string) bool { return name == "localhost" || strings.HasSuffix(name, ".localhost") }

// dnsPort is the guard's on every address: whatever an entry says, the packet filter leads it there, or refuses it.
const dnsPort = 53

// LineToResolve returns the entry that would let name be resolved, "" if none is needed, or would do. Nobody knows on which
// port it is wanted.
func (p *Policy) LineToResolve(name string) string {
	if p.Lookup(name).Allowed {
		return ""
	}
	return p.LineFor(name, netip.Addr{}, HTTPS)
}

// LineFor returns the entry that would allow name on port, at an address if that is known; "" if none is needed, or would
// do: a rule denies it, the ceiling stops it, or the broker alone reaches it.
func (p *Policy) LineFor(name string, at netip.Addr, port Port) string {
	m, d := p.Lookup(name), p.Decide(name, port)
	if m.Name == "" || d.Rule != nil {
		return ""
	}
	r := &Rule{Name: m.Name, Ports: []Port{port}}
	switch {
	case !m.Allowed && (port == HTTPS || port == HTTP):
		r.Ports = webPorts
	case (port == HTTPS || port == HTTP) && slices.ContainsFunc(p.Ports(m.Name), func(other Port) bool { return p.Way(m.Name, other) == Inspected }):
		// The server may take the same requests there, and whoever reads the line wanted them looked at.
		r.Request = &route.Request{Methods: route.Reading()}
	}
	at = at.WithZone("").Unmap()
	switch {
	case !strings.Contains(m.Name, "."):
	case at.IsValid():
		r.Private = Classify(at) == Private && !slices.Contains(p.hosts[m.Name], at)
	default:
		r.Private = p.allow.which(m.Name, func(r *Rule) bool { return r.Private }) != nil || !m.Allowed && p.ofSite(m.Name)
	}
	return p.Tried(r, at, port)
}

// ofSite says whether the addresses of a name are most likely private: it is found below a search domain, or no public
// server has any.
func (p *Policy) ofSite(name string) bool {
	for range p.Resolv.Above(name) {
		return ofNetwork(name)
	}
	top := name[strings.LastIndexByte(name, '.')+1:]
	return len(p.Asked(name)) > 1 || top != "test" && slices.Contains(siteTLDs[:], top)
}

// LineForAddr is LineFor of an address.
func (p *Policy) LineForAddr(a netip.Addr, port Port) string {
	a = a.WithZone("").Unmap()
	if d := p.DecideAddr(a, port); d.Rule != nil || Classify(a) > Private {
		return ""
	}
	return p.Tried(&Rule{Prefix: single(a), Ports: []Port{port}}, a, port)
}

// LineForAnswer returns the entry by which an allowed name may have a private address that it was resolved to: the one that
// allows it, with the word. It is "" if none is needed, or would do.
func (p *Policy) LineForAnswer(name string, a netip.Addr) string {
	m := p.Lookup(name)
	if !m.Allowed || len(p.Admit(name, a)) > 0 || Classify(a) != Private {
		return ""
	}
	for _, port := range p.Ports(m.Name) {
		r := *p.allow.find(m.Name, port)
		r.Name, r.Wildcard, r.Required, r.Private = m.Name, false, false, true
		if line := p.Tried(&r, a, port); line != "" {
			return line
		}
	}
	return ""
}

// Tried is the line of an entry for a canonical name, or a single address, if with it that would be allowed on port; else "".
// A ceiling may leave less of the entry than it says.
func (p *Policy) Tried(r *Rule, at netip.Addr, port Port) string {
	r.Text = r.String()
	ps, x := newParser(nil), &p.Settings.UpstreamProxy
	switch ps.entry(&Rule{Text: r.Text}); {
	case ps.errs.list != nil, port.Number == dnsPort, p.brokered(r.Target(), port),
		at.IsValid() && p.deniedBlock(single(at), port) != nil:
		return ""
	case r.Name == "": // an address
	case p.denying(r.Name, port) != nil, r.Name == Canary, Reverse(r.Name), OwnName(r.Name):
		return ""
	case x.Host == r.Name && slices.ContainsFunc(r.Ports, func(port Port) bool { return port.Number == x.Port }): // the agent never reaches it
		return ""
	}
	added := []*Rule{r}
	if p.ceiling != nil {
		added, _ = p.ceiling.narrow(r)
	}
	q := &Policy{Settings: p.Settings, Resolv: p.Resolv, hosts: p.hosts}
	q.Settings.Inspected = nil
	for _, by := range p.rules {
		if r.Name != "" && by.Name != "" && by.goes(r) {
			q.rules = append(q.rules, by)
		}
	}
	q.rules = append(q.rules, added...)
	q.inspect(ps)
	q.index()
	q.upstreamProxied(ps)
	q.unmixed(ps)
	var helps bool
	switch {
	case r.Name == "":
		helps = q.DecideAddr(at, port).Allowed
	case !at.IsValid():
		helps = q.Decide(r.Name, port).Allowed
	default:
		helps = slices.Contains(q.Admit(r.Name, at), port)
	}
	if !helps || ps.errs.list != nil {
		return ""
	}
	return r.Text
}
