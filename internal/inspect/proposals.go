package inspect

import (
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// NewProposals begins with a policy, what is open by it, and the plan of the self-test, which is told from the agent.
func NewProposals(p *policy.Policy, leases []lease.Name, plan selftest.Plan) *Proposals {
	return newProposals(published{policy: p, leases: lease.Report{Names: leases}, probe: probesIn(plan)})
}

// Agents says whether an event is a refusal of the agent's own.
func (s *Proposals) Agents(e audit.Event) bool { return s.probe.theAgents(e) }

// For is the line that would have allowed just this event; none if a rule denies it, or no line could.
func (s *Proposals) For(e audit.Event) (line, name string, byRule bool) {
	one := *s
	one.lines, one.denied, one.more = map[string]*suggestion{}, map[string]*suggestion{}, map[string]bool{}
	one.requests, one.steps = map[requestPlace]*step{}, 0
	one.Add(e)
	for _, g := range one.lines {
		return g.Line, g.name, false
	}
	for _, g := range one.requestLines() {
		return g.Line, g.name, false
	}
	for _, g := range one.denied {
		return "", g.name, true
	}
	return "", e.Name, false
}
