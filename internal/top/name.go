package top

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// way is how a connection goes.
type way string

const (
	byGate    way = "gate"      // the name inside is looked at
	inspected way = "inspected" // each request is
	byBroker  way = "broker"    // over a route, which the agent asks on loopback
	direct    way = "direct"    // it would pass the gate, and an entry says that it need not
	byAddress way = "address"   // what it is to is open by its address
	inbound   way = "inbound"   // somebody else has opened it
	inside    way = "inside"    // both ends are in the container
	unknown   way = "?"         // nothing that is published says why it is open
)

// leased is a name that an address was opened for.
type leased struct {
	name       string
	on, direct []string // ports, as 443/tcp
}

// openedBy has the names of a report by address.
func openedBy(r *lease.Report) map[netip.Addr][]leased {
	names := map[netip.Addr][]leased{}
	if r == nil {
		return names
	}
	for _, n := range r.Names {
		for _, a := range n.Addrs {
			names[a.Addr] = append(names[a.Addr], leased{n.Name, strings.Fields(a.On), strings.Fields(a.Direct)})
		}
	}
	return names
}

// latest is the name that was asked for last, and how many others it may be. Who was asked for is no proof: a server has
// several names, and a program may have known the address.
func (m *Model) latest(all []leased) (name string, others int) {
	for _, l := range all {
		asked, than := m.asked[l.name], m.asked[name]
		if name == "" || asked != nil && (than == nil || asked.last.Time.After(than.last.Time)) {
			name = l.name
		}
	}
	return name, max(0, len(all)-1)
}

// leads says whom a connection is to, and how it goes there.
func (m *Model) leads(c *sockowner.Conn) (name string, others int, by way) {
	local, remote := c.Local.Addr(), c.Remote.Addr()
	serves := func(at netip.AddrPort) bool {
		_, is := m.facts.Sockets.Listening[at]
		_, any4 := m.facts.Sockets.Listening[netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())]
		_, any6 := m.facts.Sockets.Listening[netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())]
		return is || any4 || any6
	}
	s := m.facts.State
	switch {
	case remote.IsLoopback() && s != nil && s.Broker.UID != 0 && c.Remote.Port() == s.Broker.Port && c.Proto == unix.IPPROTO_TCP:
		return m.route(), 0, byBroker
	case remote.IsLoopback() || local == remote:
		return "", 0, inside
	case c.Proto == unix.IPPROTO_TCP && serves(c.Local):
		return "", 0, inbound
	}
	port := policy.Port{Proto: policy.TCP, Number: c.Remote.Port()}
	if c.Proto == unix.IPPROTO_UDP {
		port.Proto = policy.UDP
	}
	word := port.String()
	open := slices.DeleteFunc(slices.Clone(m.names[remote]), func(l leased) bool { return !slices.Contains(l.on, word) })
	if name, others = m.latest(open); name != "" {
		past := slices.ContainsFunc(open, func(l leased) bool { return slices.Contains(l.direct, word) })
		return name, others, m.passes(name, port, past)
	}
	switch {
	case m.facts.Policy == nil || !m.facts.Policy.DecideAddr(remote, port).Allowed:
		return "", 0, unknown
	case m.reduced() && c.Proto == unix.IPPROTO_TCP:
		return "", 0, byGate
	}
	return "", 0, byAddress
}

// passes says how connections to a leased name go; past says that the gate is passed by.
func (m *Model) passes(name string, port policy.Port, past bool) way {
	switch p := m.facts.Policy; {
	case p == nil:
		return unknown
	case p.Way(name, port) == policy.Inspected:
		return inspected
	case p.Way(name, port) == policy.Gated, m.reduced() && port.Proto == policy.TCP:
		return byGate
	case p.Direct(name, port) != nil && past:
		return direct
	case p.Direct(name, port) != nil: // another name of the address has it go there
		return byGate
	}
	return byAddress
}

// reduced says whether all that may go out goes through the guard.
func (m *Model) reduced() bool { return m.facts.State != nil && m.facts.State.Firewall.Reduced != "" }

// route is the broker's only one, or "": the path of a request says which, and nobody reads that here.
func (m *Model) route() (name string) {
	for _, r := range m.facts.State.Broker.Routes {
		if r.Present && name != "" {
			return ""
		}
		if r.Present {
			name = r.Name
		}
	}
	return name
}
