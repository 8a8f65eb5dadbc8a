package policy

import (
	"net/netip"
	"strconv"
	"strings"
)

// Refusal is what whoever asked for name is told in one line, by DNS and on
// port 80 alike: why, and where more is to be learned. by is the rule that
// denies it, nil if none allows it. What is not a plain name is not repeated.
func Refusal(name string, by *Rule) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		name = "NAME"
	}
	why := reasonUnlisted
	if by != nil {
		why = "denied by " + by.Source.String()
	}
	return why + ": agent-init explain " + name
}

// LineFor returns the entry that would allow name on port, "" if it is allowed
// already or no entry would: a rule denies it there, or it is not a name.
func (p *Policy) LineFor(name string, port Port) string {
	m := p.Lookup(name)
	switch {
	case m.Name == "", p.Decide(name, port).Rule != nil:
		return ""
	case !m.Allowed && port.Proto == TCP && (port.Number == 443 || port.Number == 80):
		return m.Name
	}
	return withPort(m.Name, port)
}

// LineForAddr is LineFor of an address.
func (p *Policy) LineForAddr(a netip.Addr, port Port) string {
	a = a.WithZone("").Unmap()
	if p.DecideAddr(a, port).Rule != nil || Classify(a) > Private {
		return ""
	}
	host := a.String()
	if a.Is6() {
		host = "[" + host + "]"
	}
	return withPort(host, port)
}

func withPort(host string, port Port) string {
	line := host + ":" + strconv.Itoa(int(port.Number))
	if port.Proto == UDP {
		line += "/udp"
	}
	return line
}

// Ports returns the ports on which name may be connected to, in order.
func (p *Policy) Ports(name string) []Port {
	name, problem := canonical(name)
	if problem != "" {
		return nil
	}
	return p.open(name)
}
