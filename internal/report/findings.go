package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

// nowOf is how agent-init does; of what was copied, how it did when it published that.
func nowOf(s *source, now time.Time) *Now {
	st := s.state
	if st == nil {
		return nil
	}
	out := &Now{
		Live: s.live(), Mode: st.Mode, Open: st.Open(), Started: st.Started, Published: st.Published, Agent: st.Agent.User, UID: st.Agent.UID,
		Backend: st.Firewall.Form(), Caveats: append([]string{}, st.Firewall.Caveats...), Repairs: st.Firewall.Repairs,
		Restarts: st.Guard.Restarts, Failures: []string{}, Keys: append([]string{}, st.Broker.Keys()...), Why: []string{},
	}
	if st.SelfTest != nil {
		out.Checks, out.Failures = st.SelfTest.Checks, append(out.Failures, st.SelfTest.Failures...)
	}
	if out.Live {
		var why []string
		out.OK, why = st.Healthy(now)
		out.Why = append(out.Why, why...)
	}
	return out
}

// findings are what a reader should know first, the worst first.
func (r *Report) findings() []Finding {
	list := slices.Concat(r.aboutNow(), r.aboutLog(), r.aboutAgent(), r.aboutPeople())
	rank := map[string]int{Bad: 0, Mind: 1, Good: 2}
	slices.SortStableFunc(list, func(a, b Finding) int { return rank[a.Level] - rank[b.Level] })
	return list
}

func (r *Report) aboutNow() (list []Finding) {
	say := func(level, format string, args ...any) {
		list = append(list, Finding{level, fmt.Sprintf(format, args...)})
	}
	if n := r.Totals.LetOut; n > 0 {
		say(Bad, "Monitor mode let %s through that the policy denies.", text.Counted(n, "attempt", "attempts"))
	}
	switch now := r.Now; {
	case now == nil:
		say(Mind, "This report is made from the log alone: no state was published, or none was copied with it.")
	case now.Open != "":
		say(Bad, "The agent is not confined: %s.", now.Open)
	case now.Live && !now.OK:
		say(Bad, "agent-init is not well: %s.", strings.Join(now.Why, "; "))
	case now.Live && now.Checks == 0:
		say(Mind, "The confinement holds, and no self-test has proved it.")
	case now.Live:
		say(Good, "The agent is confined. A self-test of %s proved it.", text.Counted(now.Checks, "check", "checks"))
	case len(now.Failures) > 0:
		say(Bad, "The self-test failed: %s.", strings.Join(now.Failures, "; "))
	case now.Checks > 0:
		say(Good, "agent-init does not run here. Its self-test of %s had passed.", text.Counted(now.Checks, "check", "checks"))
	}
	if now := r.Now; now != nil {
		for _, c := range now.Caveats {
			say(Mind, "The packet filter is weaker than another would be: %s.", c)
		}
		for _, k := range now.Keys {
			level := Good
			if strings.Contains(k, "holds what it logs in with") {
				level = Mind
			}
			say(level, "Route %s.", k)
		}
	}
	failed := slices.ContainsFunc(r.SelfTests, func(n Note) bool { return n.Verdict == audit.Fault })
	if failed && (r.Now == nil || len(r.Now.Failures) == 0) {
		say(Mind, "A self-test has failed at some time.")
	}
	if n := r.Totals.Faults; n > 0 {
		say(Mind, "Something broke %s. What it guards was sealed meanwhile.", text.Times(n))
	}
	return list
}

func (r *Report) aboutLog() (list []Finding) {
	say := func(format string, args ...any) { list = append(list, Finding{Mind, fmt.Sprintf(format, args...)}) }
	if n := r.Log.Missing; n > 0 {
		say("The log lacks %s: their numbers are missing.", text.Counted(n, "line", "lines"))
	}
	if n := r.Log.Unwritten; n > 0 {
		say("The log lacks %s that could not be written.", text.Counted(n, "event", "events"))
	}
	if n := r.Log.Unreadable; n > 0 {
		say("The log has %s that agent-init did not write.", text.Counted(n, "line", "lines"))
	}
	if r.Log.Torn {
		say("The last line of the log has no end, and is left out.")
	}
	return list
}

func (r *Report) aboutAgent() (list []Finding) {
	say := func(level, format string, args ...any) {
		list = append(list, Finding{level, fmt.Sprintf(format, args...)})
	}
	if n := r.Totals.Refused - r.Totals.LetOut; n > 0 {
		say(Good, "%s refused.", text.Counted(n, "attempt of the agent's was", "attempts of the agent's were"))
	} else if r.Log.Events > 0 && r.Totals.LetOut == 0 {
		say(Good, "Nothing that the agent tried was refused.")
	}
	unseen := 0
	for _, c := range r.Contacts {
		if c.Unseen {
			unseen++
		}
	}
	if unseen > 0 {
		say(Mind, "%s be reached by address, where no bytes are counted.", text.Counted(unseen, "name can", "names can"))
	}
	if p := r.Policy; p != nil && p.Unused > 0 {
		say(Mind, "Nobody used %s of the policy.", text.Counted(p.Unused, "entry", "entries"))
	}
	return list
}

func (r *Report) aboutPeople() (list []Finding) {
	opened, waiting := 0, 0
	for _, s := range r.Grants {
		if slices.ContainsFunc(s.Events, func(n Note) bool { return n.Verdict == audit.Allow }) {
			opened++
		}
	}
	for _, g := range r.Standing {
		if g.Kind == "request" && g.Outcome == "" {
			waiting++
		}
	}
	if opened > 0 {
		list = append(list, Finding{Mind, fmt.Sprintf("People opened %s at run time.", text.Counted(opened, "target", "targets"))})
	}
	if waiting > 0 {
		list = append(list, Finding{Mind, fmt.Sprintf("%s of the agent's for a person.", text.Counted(waiting, "request waits", "requests wait"))})
	}
	return list
}
