package keeper

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The reduced form is for kernels that hold neither sets nor states: gVisor's.
// There everything that the policy may allow goes to the guard, which asks the
// keeper's book and connects onward; see pkg/firewall/internal/plan/reduced.go. What can't be
// held that way is refused when the policy is read.
//
// The agent gets no ping sockets, since no rule tells an echo from neighbour
// discovery, and no user namespaces: whether capabilities of such a namespace
// change the rules of another is gVisor's to decide, in each version anew.

// reducible says what of p no reduced form can hold.
func reducible(p *policy.Policy) error {
	var out []string
	for r := range p.Rules() {
		for _, port := range r.Ports {
			if !r.Deny && port.Proto != policy.TCP {
				out = append(out, fmt.Sprintf("%s: %s: nothing but TCP can be let through inside gVisor", r.Source, r))
			}
		}
	}
	for _, port := range p.Settings().Inbound {
		if port.Proto != policy.TCP {
			out = append(out, fmt.Sprintf("inbound: %s: nothing but TCP can be let in inside gVisor", port))
		}
	}
	if len(out) == 0 {
		return nil
	}
	const most = 20
	if n := len(out) - most; n > 0 {
		out = append(out[:most], fmt.Sprintf("and %d more", n))
	}
	return errors.New(strings.Join(out, "\n"))
}

// gatedPorts are the ports of names. The gate looks into 80 and 443, and asks the
// book about the others.
func gatedPorts(p *policy.Policy) []uint16 {
	out := []uint16{policy.HTTP.Number, policy.HTTPS.Number}
	for r := range p.Rules() {
		for _, port := range r.Ports {
			if !r.Deny && r.Name != "" {
				out = append(out, port.Number)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// relayedPorts are those on which the gate accepts whatever comes: of names, and of
// addresses.
func relayedPorts(p *policy.Policy) []uint16 {
	out := gatedPorts(p)
	for _, s := range p.Static() {
		out = append(out, s.Port.Number)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reduce makes c the configuration of a reduced plan, if p can be held by one.
func reduce(c *firewall.Config, p *policy.Policy) error {
	if c.Observe {
		return fault.New(fault.Usage, "start with --mode enforce, or use another runtime", "--mode monitor needs a packet filter that logs, and gVisor's does not")
	}
	if err := reducible(p); err != nil {
		return fault.New(fault.Policy, "take these entries out, or use another runtime than gVisor", "the packet filter can't hold this policy\n%w", err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fault.New(fault.Rules, "let netlink sockets be opened in the container (socket(2), AF_NETLINK)", "list this container's addresses: %w", err)
	}
	for _, a := range addrs {
		if local, err := netip.ParsePrefix(a.String()); err == nil {
			c.Local = append(c.Local, local)
		}
	}
	c.Gated, c.DropGroup = gatedPorts(p), 0
	return nil
}
