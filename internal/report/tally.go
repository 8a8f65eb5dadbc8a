package report

import (
	"strings"

	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// tally is what the log comes to, as it is read from its beginning to its end.
type tally struct {
	policy    *policy.Policy // an empty one, if none is known
	proposals *inspect.Proposals
	report    *Report // what needs no more than to be counted
	totals    Totals
	leftOut   LeftOut
	timeline  Timeline
	contacts  *folded[Contact]
	refusals  *folded[Refusal]
	inbound   *folded[Inbound]
	routes    *folded[Route]
	hits      map[string]uint64 // of the policy's rules, by file and line
	open      map[string]int    // connections by these rules now
	stories   map[string]*Story
	order     []*Story
	selfTests notes
	notes     notes
	seq       uint64
}

func newTally(s *source, r *Report) *tally {
	p := s.judge()
	t := &tally{
		policy: p, proposals: inspect.NewProposals(p, s.leases, s.plan), report: r,
		contacts: newFolded(maxListed, (*Contact).weight),
		refusals: newFolded(maxListed, (*Refusal).weight),
		inbound:  newFolded(maxInbound, func(i *Inbound) uint64 { return i.Allowed + i.Refused }),
		routes:   newFolded(maxRoutes, func(r *Route) uint64 { return r.Requests + r.TokensIn + r.TokensOut }),
		hits:     map[string]uint64{}, open: map[string]int{}, stories: map[string]*Story{},
	}
	for rule := range p.Rules() {
		t.hits[rule.Source.String()] = 0
	}
	for _, e := range p.RouteEntries() {
		t.hits[e.Source] = 0
	}
	return t
}

// line takes in a line of the log.
func (t *tally) line(line []byte) {
	e, err := audit.Decode(line)
	if err != nil {
		t.report.Log.Unreadable++
		return
	}
	if e.Time.Before(t.report.Since) {
		t.seq = 0
		return
	}
	t.count(e)
	t.event(e)
}

// count takes in that there was an event.
func (t *tally) count(e audit.Event) {
	log := &t.report.Log
	log.Events++
	log.Folded += e.Suppressed
	if t.seq != 0 && e.Seq > t.seq+1 {
		log.Missing += e.Seq - t.seq - 1
	}
	t.seq = e.Seq
	if e.Kind == audit.Guard && strings.HasPrefix(e.Reason, audit.Unwritten) {
		log.Unwritten += e.Suppressed
		log.Folded -= e.Suppressed
	}
	if !e.Time.IsZero() {
		t.timeline.reach(e.Time) // what people decided has a place on it, too
		if t.report.First.IsZero() || e.Time.Before(t.report.First) {
			t.report.First = e.Time
		}
	}
	t.report.Last = later(t.report.Last, e.Time)
	if e.Verdict == audit.Fault {
		t.totals.Faults += 1 + e.Suppressed
	}
}

func (t *tally) event(e audit.Event) {
	t.proposals.Add(e)
	switch {
	case e.Kind == audit.Grant:
		t.grant(e)
	case e.Kind == audit.SelfTest:
		t.selfTests.add(e)
	case e.Kind == audit.Policy, e.Kind == audit.Session, e.Kind == audit.Guard, e.Verdict == audit.Fault:
		t.notes.add(e)
	case e.Asker == audit.ByOutside:
		t.outside(e)
	case e.Asker != audit.Agent:
	case inspect.Denied(e) && !t.proposals.Agents(e): // a self-test in a shell of the agent's
	default:
		t.agents(e)
	}
}

// agents takes in what the agent did.
func (t *tally) agents(e audit.Event) {
	t.timeline.add(e)
	if e.Kind == audit.Broker && e.Route != "" {
		t.route(e)
		t.hit(t.routeRule(e.Route), e)
	}
	t.hit(e.Rule, e)
	if inspect.Denied(e) {
		t.refusal(e)
	}
	if e.Verdict == audit.Allow {
		t.contact(e)
	}
}

// hit counts what an entry of the policy has decided.
func (t *tally) hit(rule string, e audit.Event) {
	if _, known := t.hits[rule]; known {
		t.hits[rule] += 1 + e.Suppressed
	}
}

func (t *tally) routeRule(name string) string {
	for _, e := range t.policy.RouteEntries() {
		if e.Name == name {
			return e.Source
		}
	}
	return ""
}
