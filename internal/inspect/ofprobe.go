package inspect

import (
	"net/netip"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// ofProbe says whether an event is a self-test's doing that the log does not say
// that of: one that was run in a shell of the agent's. The guard believes nobody
// there. For a person who reads, it is told well enough by what the published plan
// tries, and by no other program being seen to do it.
type ofProbe func(audit.Event) bool

// probesOf reads the published plan.
func probesOf() ofProbe {
	dir, err := state.Find()
	if err != nil {
		return nil
	}
	var plan selftest.Plan
	if dir.Read(state.ProbesFile, &plan) != nil {
		return nil
	}
	return probesIn(plan)
}

func probesIn(plan selftest.Plan) ofProbe {
	names, addrs := map[string]bool{}, map[netip.AddrPort]bool{}
	for _, name := range plan.Denied {
		names[name] = true
	}
	for _, list := range [][]netip.AddrPort{plan.DNS, plan.TCP, plan.UDP, plan.Metadata} {
		for _, a := range list {
			addrs[a] = true
		}
	}
	for _, a := range plan.Ping {
		addrs[netip.AddrPortFrom(a, 0)] = true
	}
	return func(e audit.Event) bool {
		if e.Comm != "" && e.Comm != "agent-init" {
			return false
		}
		a, err := netip.ParseAddr(e.IP)
		return names[e.Name] || err == nil && addrs[netip.AddrPortFrom(a, e.Port)]
	}
}

// theAgents says whether e is a denial of the agent's own.
func (probe ofProbe) theAgents(e audit.Event) bool {
	return denied(e) && e.Asker == audit.Agent && (probe == nil || !probe(e))
}
