package state

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// Report is what status --json prints. The names of its fields are public.
type Report struct {
	Healthy bool     `json:"healthy"`
	Why     []string `json:"why,omitempty"`
	*State
}

// Write shows the state on one screen.
func (s *State) Write(w io.Writer, ok bool, why []string, colour bool) {
	healthy := text.Painted("confined and healthy", "32", colour)
	switch {
	case ok && s.SelfTest == nil: // --selftest off
		fmt.Fprintln(w, healthy+", but not proved: no self-test was run")
	case ok:
		fmt.Fprintln(w, healthy)
	default:
		fmt.Fprintln(w, text.Painted(s.headline(), "31", colour))
		for _, line := range why {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	for i, line := range s.Broker.Keys() {
		row([]string{"keys", ""}[min(i, 1)], "%s", text.Clean(line))
	}
	row("mode", "%s, %s, started %s", s.Mode, ModeWord(s.Monitor), text.Moment(s.Started, time.Now()))
	row("agent", "%s (uid %d)", s.Agent.User, s.Agent.UID)
	if g := s.Gateway; g != nil {
		row("inside", "%s: agents of %s; answered at %s, with %s addresses", g.Interface, joined(g.Networks), joined(g.Addresses), g.Answer)
	}
	compared := "not compared with the plan again yet"
	if !s.Firewall.Verified.IsZero() {
		compared = "compared with the plan " + text.Ago(s.Firewall.Verified)
	}
	row("rules", "%s, %s, repaired %s", s.Firewall.Form(), compared, text.Times(s.Firewall.Repairs))
	row("", "%s", s.Firewall.Why)
	for _, c := range s.Firewall.Caveats {
		row("", "weaker: %s", c)
	}
	row("policy", "%s; loaded %s", SizeOf(s.Policy.Counts), text.Ago(s.Policy.Loaded))
	if s.Policy.Phase != "" {
		row("phase", "%s", s.Policy.Phase)
	}
	if c := s.Ceiling; c != nil {
		row("ceiling", "%s", c.words())
		for _, line := range c.First {
			row("", "%s", text.Clean(line))
		}
	}
	for _, g := range s.Given {
		row("", "started with %s", text.Clean(g))
	}
	if n := s.Policy.Inspected; n > 0 {
		row("", "inspected: %s, request by request, by the broker", text.Counted(n, "name with a port", "names with a port"))
	}
	if n := s.Policy.Direct; n > 0 {
		row("", "direct: %s past the name gate. Whatever else is at those addresses is reached as well; see agent-init check", text.Counted(n, "entry leads", "entries lead"))
	}
	if x := s.Policy.UpstreamProxy; x != "" {
		row("", "upstream proxy: %s", x)
	}
	guard := "down"
	if s.Guard.OK {
		guard = "up"
	}
	row("guard", "%s (uid %d), restarted %s; %s, %d denied", guard, s.Guard.UID, text.Times(s.Guard.Restarts), text.Counted(s.Guard.Stats.Queries, "query", "queries"), s.Guard.Stats.Denied)
	row("dns", "%s", text.Clean(s.DNS.words(time.Now())))
	for _, p := range s.Guard.PassedOver {
		row("", "not asked: %s", p)
	}
	row("gate", "%s now; %d passed, %d refused", text.Counted(s.Guard.Stats.Relays, "connection", "connections"), s.Guard.Stats.Passed, s.Guard.Stats.Refused)
	s.Broker.rows(row)
	row("leases", "%s with a port, for %s", text.Counted(s.Leases.Elements, "address", "addresses"), text.Counted(s.Leases.Names, "name", "names"))
	if g := s.Grants; g.Allowed+g.Denied+g.Requests+g.Saved > 0 {
		saved := ""
		if g.Saved > 0 {
			saved = fmt.Sprintf(", %d for good", g.Saved)
		}
		row("grants", "%d allowed, %d denied at run time%s; waiting: %s of the agent; see agent-init grants", g.Allowed, g.Denied, saved, text.Counted(g.Requests, "request", "requests"))
	}
	switch {
	case s.SelfTest == nil:
		row("self-test", "not run")
	case s.SelfTest.OK:
		row("self-test", "passed %s: %s in %d ms", text.Ago(s.SelfTest.Time), text.Counted(s.SelfTest.Checks, "check", "checks"), s.SelfTest.Millis)
	default:
		row("self-test", "FAILED %s", text.Ago(s.SelfTest.Time))
	}
	if s.Session.Name != "" {
		row("session", "%s: %s, %s attached", s.Session.Name, text.Counted(s.Session.Windows, "window", "windows"), text.Counted(s.Session.Attached, "client", "clients"))
	}
	fault := ""
	if strings.HasPrefix(s.Audit.File, "/dev/shm/") {
		fault = " (in memory, which the agent can fill)"
	}
	if s.Audit.Fault != "" {
		fault = " (events are being lost: " + s.Audit.Fault + ")"
	}
	row("audit", "%s%s", s.Audit.File, fault)
	if s.Audit.Found > 0 {
		row("", "changed by somebody else, %s: agent-init log --verify", text.Counted(int(s.Audit.Found), "time", "times"))
	}
	if s.Audit.Head.Seq > 0 {
		row("", "head %d:%s", s.Audit.Head.Seq, s.Audit.Head.Short())
	}
}

func (c *Ceiling) words() string {
	s := "not signed"
	if c.Signed.Serial > 0 {
		s = fmt.Sprintf("signed, number %d", c.Signed.Serial)
	}
	if !c.Signed.Expires.IsZero() {
		s += ", until " + c.Signed.Expires.UTC().Format(time.RFC3339)
	}
	return s + "; it stopped " + text.Counted(c.Stopped, "entry or setting", "entries and settings")
}

func joined[T fmt.Stringer](list []T) string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

func (s *State) headline() string {
	switch {
	case s.Phase == PhaseOpen || s.Monitor:
		return "NOT CONFINED"
	case s.Phase == PhaseReady && s.Keeper.Alive() && s.Firewall.Fault == "" && (s.SelfTest == nil || s.SelfTest.OK):
		return "confined, but degraded"
	}
	return "not healthy"
}

// Settled says whether it is known how the start went, and if it didn't go well, why.
func (s *State) Settled() (bool, error) {
	alive := s.Keeper.Alive()
	switch {
	case s.Keeper.PID == 1 && !alive:
		// It was PID 1 before this container was restarted. The present one has not published anything yet.
	case s.Phase == PhaseReady && alive:
		return true, nil
	case s.Phase == PhaseFailed:
		return true, fault.New(fault.SelfTest, "see agent-init status", "the container is sealed, and not ready: %s", s.Reason)
	case s.Phase == PhaseOpen:
		return true, fault.New(fault.SelfTest, "start without --unsafe-no-firewall", "the container is not confined")
	}
	return false, nil
}

// ModeWord is the mode as --mode has it.
func ModeWord(monitor bool) string {
	if monitor {
		return "monitor"
	}
	return "enforce"
}
