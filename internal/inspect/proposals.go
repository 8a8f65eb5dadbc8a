package inspect

import (
	"time"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// Since is the time that --since means: 10m, 1d, start, RFC 3339, or "" for the beginning.
func Since(words string, started, now time.Time) (time.Time, error) {
	return sinceTime(words, started, now)
}

// Denied says whether something was refused, or would have been in enforce mode.
func Denied(e audit.Event) bool { return denied(e) }

// Asked says in words which process an event is of; "" if nothing is known.
func Asked(e audit.Event) string { return processOf(e) }

// LogFault says what to do about a log that can't be read.
func LogFault(err error) error { return logFault(err) }

// Proposals are the lines that would have allowed what was refused, for who reads the log by itself.
type Proposals struct{ s *suggester }

// NewProposals begins with a policy, what is open by it, and the plan of the self-test, which is told from the agent.
func NewProposals(p *policy.Policy, leases []lease.Name, plan selftest.Plan) *Proposals {
	return &Proposals{newSuggester(published{policy: p, leases: lease.Report{Names: leases}, probe: probesIn(plan)})}
}

// Add takes in an event. All of the log belong here, in its order: answers of DNS say whose an address is.
func (p *Proposals) Add(e audit.Event) { p.s.add(e) }

// Agents says whether an event is a refusal of the agent's own.
func (p *Proposals) Agents(e audit.Event) bool { return p.s.probe.theAgents(e) }

// For is the line that would have allowed just this event; none if a rule denies it, or no line could.
func (p *Proposals) For(e audit.Event) (line, name string, byRule bool) {
	one := *p.s
	one.lines, one.denied, one.more = map[string]*suggestion{}, map[string]*suggestion{}, map[string]bool{}
	one.requests, one.steps = map[requestPlace]*step{}, 0
	one.add(e)
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

// Since are the proposals for all that was added.
func (p *Proposals) Since(from time.Time) Suggestions { return p.s.result(from) }
