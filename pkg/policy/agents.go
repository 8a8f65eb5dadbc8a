package policy

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Agent is one of several agents behind a gateway. Each has a policy of its own.
type Agent struct {
	Name     string         `json:"name"`
	Networks []netip.Prefix `json:"networks"`         // its addresses, or what is behind an interface of the gateway
	MAC      string         `json:"mac,omitempty"`    // its hardware address; "": any
	Policy   string         `json:"policy,omitempty"` // its directory, below that of agents; "": of its name
}

// Dir is the name of the directory of its policy.
func (a Agent) Dir() string {
	if a.Policy != "" {
		return a.Policy
	}
	return a.Name
}

// MaxAgents is how many a gateway has at most.
const MaxAgents = 256

// AgentName says why no agent can have this name, which is one of a directory and of a table of the kernel's.
func AgentName(s string) string {
	if s == "" || len(s) > 63 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || s[0] == '-' {
		return "an agent's name has letters from a to z, digits and hyphens"
	}
	return ""
}

// agents reads a list of mappings.
func (ps *parser) agents(list node) {
	switch {
	case list.isNull():
		return
	case list.Kind != yaml.SequenceNode:
		ps.wrong(list, "agents must be a list, with - in front of each agent")
		return
	}
	for _, item := range list.Content {
		n, faults := list.of(item), ps.errs.count()
		a := ps.agent(n)
		if ps.errs.count() > faults {
			continue
		}
		if ps.besides(n, a); ps.errs.count() == faults {
			ps.settings.Agents = append(ps.settings.Agents, a)
		}
	}
}

// agent reads one. What is wrong with it is among the errors.
func (ps *parser) agent(n node) (a Agent) {
	one := func(to *string, parse func(text string) (string, string)) func(node) {
		return func(n node) {
			if text, ok := ps.scalar(n, n.name); ok {
				var problem string
				if *to, problem = parse(text); problem != "" {
					ps.wrong(n, problem)
				}
			}
		}
	}
	named := func(text string) (string, string) { return text, AgentName(text) }
	keys := []key{
		{name: "name", read: one(&a.Name, named)},
		{name: "address", read: ps.oneOrMore(&a, func(text string) (netip.Prefix, string) {
			addr, err := netip.ParseAddr(text)
			if err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() || addr.IsLinkLocalUnicast() {
				return netip.Prefix{}, "an agent's address is one, as in 172.30.5.10"
			}
			addr = addr.Unmap()
			return netip.PrefixFrom(addr, addr.BitLen()), ""
		})},
		{name: "network", read: ps.oneOrMore(&a, func(text string) (netip.Prefix, string) {
			p, err := netip.ParsePrefix(text)
			if err != nil || p.Bits() == 0 || p.Addr().Is4In6() || p.Masked() != p {
				return p, "an agent's network is a block of addresses, as in 172.30.6.0/24"
			}
			return p, ""
		})},
		{name: "mac", read: one(&a.MAC, func(text string) (string, string) {
			mac, err := net.ParseMAC(text)
			if err != nil || len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
				return "", "a hardware address is one of a network card, as in 02:42:ac:1e:05:0a"
			}
			return mac.String(), ""
		})},
		{name: "policy", read: one(&a.Policy, named)},
	}
	ps.mapping(n, names(keys), func(name string, n node) {
		keys[slices.IndexFunc(keys, func(k key) bool { return k.name == name })].read(n)
	})
	return a
}

// oneOrMore reads one value, or a list of them.
func (ps *parser) oneOrMore(a *Agent, parse func(text string) (netip.Prefix, string)) func(node) {
	return func(n node) {
		list := []*yaml.Node{n.Node}
		if n.Kind == yaml.SequenceNode {
			list = n.Content
		}
		for _, item := range list {
			n := n.of(item)
			text, ok := ps.scalar(n, n.name)
			if !ok {
				continue
			}
			if p, problem := parse(text); problem != "" {
				ps.wrong(n, problem)
			} else {
				a.Networks = append(a.Networks, p)
			}
		}
	}
}

// besides says what is wrong with an agent beside those before it.
func (ps *parser) besides(n node, a Agent) {
	wrong := func(text, format string, args ...any) {
		ps.errs.add(Error{Source: n.at(), Text: text, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case a.Name == "":
		wrong("", "an agent needs a name")
	case len(a.Networks) == 0:
		wrong(a.Name, "an agent needs an address, or a network")
	case len(ps.settings.Agents) == MaxAgents:
		wrong(a.Name, "a gateway has %d agents at most", MaxAgents)
	}
	for i, p := range a.Networks {
		if slices.ContainsFunc(a.Networks[:i], p.Overlaps) {
			wrong(p.String(), "an agent's addresses stand there once")
		}
		if a.MAC != "" && !p.IsSingleIP() {
			wrong(p.String(), "a hardware address is of one machine: give the agent's address instead of its network")
		}
	}
	for _, o := range ps.settings.Agents {
		if o.Name == a.Name {
			wrong(a.Name, "two agents have this name")
		}
		for _, p := range a.Networks {
			if slices.ContainsFunc(o.Networks, p.Overlaps) {
				wrong(p.String(), "the agents %s and %s have addresses in common", o.Name, a.Name)
			}
		}
	}
}

// checkAgents refuses what is neither about the agents nor about the gateway itself: it would be nobody's.
func (p *Policy) checkAgents(ps *parser) {
	if len(ps.settings.Agents) == 0 {
		return
	}
	nobodys := func(src Source, text string) {
		ps.errs.add(Error{Source: src, Text: text, Message: "beside agents, this is nobody's: write it into the directory of an agent"})
	}
	for _, r := range p.rules {
		nobodys(r.Source, r.Text)
		break // of a long list, one says all
	}
	for _, name := range slices.Sorted(maps.Keys(ps.set)) {
		if !strings.HasPrefix(name, "log.") {
			nobodys(ps.set[name], name)
		}
	}
	for _, w := range p.routes {
		nobodys(w.at[""], w.Name)
	}
}
