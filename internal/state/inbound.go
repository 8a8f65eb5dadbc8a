package state

import (
	"github.com/agent-init/agent-init/pkg/policy"
)

// Inbound are the TCP ports that p lets in.
func Inbound(p *policy.Policy) (ports []uint16) {
	for _, in := range p.Settings.Inbound {
		if in.Proto == policy.TCP {
			ports = append(ports, in.Number)
		}
	}
	return ports
}
