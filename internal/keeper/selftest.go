package keeper

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// runSelfTest has a process try what is in plan, and ends it. See newProber for beside.
func (k *keeper) runSelfTest(ctx context.Context, plan selftest.Plan, beside bool) (selftest.Report, error) {
	k.guard.overheard.about(plan)
	if err := k.guard.announce(&plan); err != nil {
		k.log.Warn("the log will take the self-test for the agent's doing", "error", err)
	}
	defer func() { _ = k.guard.announce(nil) }() // a guard that has ended knows of no self-test
	p, err := k.agent.newProber(plan, beside)
	if err != nil {
		return selftest.Report{}, err
	}
	defer p.end(k.base)
	report, err := p.prove(ctx)
	if err == nil {
		k.guard.overheard.explain(report)
	}
	return report, err
}

// knownNames are names under which a policy may allow, on purpose, an address that the standard plan tries.
var knownNames = map[string][]string{
	"1.1.1.1":              {"one.one.one.one", "cloudflare-dns.com"},
	"1.0.0.1":              {"one.one.one.one", "cloudflare-dns.com"},
	"8.8.8.8":              {"dns.google"},
	"8.8.4.4":              {"dns.google"},
	"9.9.9.9":              {"dns.quad9.net"},
	"2606:4700:4700::1111": {"one.one.one.one", "cloudflare-dns.com"},
	"2001:4860:4860::8888": {"dns.google"},
	"2620:fe::fe":          {"dns.quad9.net"},
}

// brokered are the names that the broker reaches, and the agent does not.
func brokered(p *policy.Policy) (names []string) {
	if p.Broker != nil {
		for _, r := range p.Broker.Names {
			if !slices.Contains(names, r.Name) {
				names = append(names, r.Name)
			}
		}
	}
	return names
}

// selfTestPlan is what the policy promises: nothing that it allows is among what must be blocked.
func (k *keeper) selfTestPlan() selftest.Plan {
	p := k.book.policy()
	var denied []string
	for _, name := range slices.Concat(brokered(p), k.book.ofOtherPhases(), selftest.NotAllowed()) {
		if !p.Lookup(name).Allowed {
			denied = append(denied, name)
		}
	}
	plan := selftest.DefaultPlan(denied...)
	allowed := func(a netip.Addr) bool {
		return slices.ContainsFunc(p.Static, func(s policy.Static) bool { return s.Prefix.Contains(a) }) ||
			slices.ContainsFunc(knownNames[a.String()], func(name string) bool { return p.Lookup(name).Allowed })
	}
	allowedPort := func(a netip.AddrPort) bool { return allowed(a.Addr()) }
	if k.config.Monitor { // it promises less
		plan.Observed, plan.Denied, plan.DNS, plan.TCP, plan.UDP = true, nil, nil, nil, nil
	}
	plan.TCP = slices.DeleteFunc(plan.TCP, allowedPort)
	plan.UDP = slices.DeleteFunc(plan.UDP, allowedPort)
	for _, r := range p.Required {
		name := r.Name
		if name == "" {
			name = r.Prefix.Addr().String()
		}
		ports := r.Ports
		if slices.Contains(ports, policy.HTTPS) && slices.Contains(ports, policy.HTTP) && len(ports) == 2 {
			ports = []policy.Port{policy.HTTPS} // the default pair: few hosts serve both
		}
		for _, port := range ports {
			if port.Proto == policy.TCP {
				plan.Required = append(plan.Required, selftest.Target{Name: name, Port: port.Number, TLS: carriesTLS(p, name, port)})
			}
		}
	}
	if k.rules.reduced {
		plan.Relayed = relayedPorts(p)
	}
	if !k.config.Monitor {
		plan.Inspected, plan.Authority = inspections(p.Settings.Inspected), k.broker.authority()
	}
	plan.Reach, plan.Block = targets(p.Settings.SelfTest.Reach), targets(p.Settings.SelfTest.Block)
	if k.config.Monitor {
		plan.Block = nil
	}
	return plan
}

// carriesTLS says whether what is at port is known to be TLS.
func carriesTLS(p *policy.Policy, name string, port policy.Port) bool {
	return port == policy.HTTPS || p.Way(name, port) != policy.ByAddress && !p.Plain(name, port)
}

// mostInspections bounds the names that a self-test asks of those that are inspected.
const mostInspections = 16

// inspections are inspected names of which it is known that no rule allows a request of selftest.Method.
func inspections(names []route.Inspected) (out []selftest.Target) {
	anyMethod := func(r route.Request) bool { return len(r.Methods) == 0 }
	all := func(r route.Request) bool { return len(r.Methods) == 0 && r.Path == "" }
	for _, n := range names {
		// Of a name that is denied whole, the gate hands nothing over.
		reached := !n.Wildcard && !n.Plain && !slices.ContainsFunc(n.Deny, all)
		if reached && !n.Observe && !slices.ContainsFunc(n.Allow, anyMethod) && len(out) < mostInspections {
			out = append(out, selftest.Target{Name: n.Name, Port: n.Port, TLS: true})
		}
	}
	return out
}

// targets reads HOST:PORT entries that the policy has checked already.
func targets(entries []string) []selftest.Target {
	var out []selftest.Target
	for _, s := range entries {
		host, port, _ := net.SplitHostPort(s) // without a port, that is none
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			out = append(out, selftest.Target{Name: host, Port: uint16(n), TLS: n == 443})
		}
	}
	return out
}

// prove runs the self-test at the start, and says whether the agent may be started.
func (k *keeper) prove(ctx context.Context) error {
	plan := k.selfTestPlan()
	if err := k.dir.Write(state.ProbesFile, 0o644, plan); err != nil {
		return err
	}
	if k.config.Selftest == "off" {
		k.log.Warn("the self-test is off: nothing was proved")
		return nil
	}
	k.waitFor(reachedFor(plan), selftest.Time)
	report, err := k.runSelfTest(ctx, plan, false)
	if err != nil {
		return fault.New(fault.SelfTest, "run it again with --log-level debug", "the self-test could not be run: %w", err)
	}
	k.proved(report)
	if report.OK {
		return nil
	}
	failures := strings.Join(report.Failures(), "; ")
	if k.config.Selftest == "warn" {
		k.log.Warn("the self-test failed; going on because of --selftest warn", "failures", failures)
		return nil
	}
	return fault.New(fault.SelfTest, "mend what is named, or take the word required from entries that may be down; to start all the same: --selftest warn",
		"self-test failed, the agent was not started: %s", failures)
}

// proved has the status and the log know what the self-test of a start, or of a phase, has come to.
func (k *keeper) proved(r selftest.Report) {
	st := &state.SelfTest{OK: r.OK, Time: time.Now(), Checks: len(r.Checks), Failures: r.Failures(), Millis: int64(r.Millis)}
	k.update(func(s *state.State) { s.SelfTest = st })
	e := audit.Event{Kind: audit.SelfTest, Verdict: audit.Info, Reason: "passed: " + sizeOfReport(r)}
	if !r.OK {
		e.Verdict, e.Reason = audit.Fault, "failed: "+strings.Join(st.Failures, "; ")
	}
	k.record(e)
}

// probe runs the self-test by the policy that is in force now, beside an agent.
func (k *keeper) probe(ctx context.Context) (selftest.Report, error) {
	plan := k.selfTestPlan()
	if err := k.dir.Write(state.ProbesFile, 0o644, plan); err != nil {
		return selftest.Report{}, err
	}
	return k.runSelfTest(ctx, plan, true)
}

// proveAgain runs the self-test for a person, by the policy that is in force now. The status keeps what the start has
// come to: a name that is down for a moment makes no container unhealthy.
func (k *keeper) proveAgain(ctx context.Context, p control.Peer) control.Reply {
	if !k.proving.TryLock() {
		return ask.Refuse(fault.Failure, "wait until it has ended", "another self-test is under way")
	}
	defer k.proving.Unlock()
	report, err := k.probe(ctx)
	if err != nil {
		return ask.Refuse(fault.SelfTest, "see agent-init status", "the self-test could not be run: %w", err)
	}
	e := audit.Event{Kind: audit.SelfTest, Verdict: audit.Info, UID: &p.UID, PID: p.PID, Reason: "passed again: " + sizeOfReport(report)}
	if !report.OK {
		e.Verdict, e.Reason = audit.Fault, "failed, when run again: "+strings.Join(report.Failures(), "; ")
	}
	k.record(e)
	return ask.Answer(report)
}

func sizeOfReport(r selftest.Report) string {
	return fmt.Sprintf("%s in %v", text.Counted(len(r.Checks), "check", "checks"), time.Duration(r.Millis*float64(time.Millisecond)).Round(time.Millisecond))
}
