package xtables

import (
	"fmt"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Caveats implements backend.
func (x *Backend) Caveats(p plan.Plan) []string {
	out := []string{"a root shell of the container has NET_RAW, and could send past the packet filter. With NET_ADMIN it could change the rules until the next comparison"}
	for _, s := range p.Sets {
		if s.Name == "asked" {
			out = append(out, fmt.Sprintf("for %v after each question of the guard to the container engine's DNS, root may send %d datagrams a second to port 53 of any IPv4 address; and what the engine asks over IPv6 is refused", s.Timeout, askedRate))
		}
	}
	return out
}

// Caveats implements backend.
func (r *reducedXT) Caveats(plan.Plan) []string {
	return []string{
		"nothing but TCP is let through, all of it by way of the guard, which may accept a connection before it is refused",
		"packets that the rules refuse are not logged; what the guard refuses is",
	}
}

// Reduced implements backend.
func (x *Backend) Reduced() string { return "" }

// Reduced implements backend.
func (r *reducedXT) Reduced() string { return r.reason }
