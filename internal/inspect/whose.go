package inspect

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// whose knows under which names the agent has met an address. A server often has
// several names, and the kernel, which refuses a packet, knows none of them.
type whose struct {
	names map[netip.Addr][]string
	asked map[string]int // by the agent: when, as a count of questions
	count int
}

func newWhose(leases []lease.Name) *whose {
	w := &whose{names: map[netip.Addr][]string{}, asked: map[string]int{}}
	for _, n := range leases {
		for _, a := range n.Addrs {
			w.is(a.Addr, n.Name)
		}
	}
	return w
}

func (w *whose) is(a netip.Addr, name string) {
	if !slices.Contains(w.names[a], name) {
		w.names[a] = append(w.names[a], name)
	}
}

// learn takes in an answer of DNS. What the guard has asked ahead says nothing of
// what the agent is about to use.
func (w *whose) learn(e audit.Event) {
	if e.Kind != audit.DNS || e.Name == "" {
		return
	}
	if a, err := netip.ParseAddr(e.IP); err == nil {
		w.is(a, e.Name)
	}
	if e.Asker == audit.Agent {
		w.count++
		w.asked[e.Name] = w.count
	}
}

// maxOthers bounds the names that a person is shown beside the likeliest.
const maxOthers = 3

// of is the name at a that the agent asked for last, and the others that it may
// have meant: those that it asked for as well, or all if it asked for none.
func (w *whose) of(a netip.Addr) (name string, others []string) {
	all := slices.SortedFunc(slices.Values(w.names[a]), func(x, y string) int {
		return cmp.Or(cmp.Compare(w.asked[y], w.asked[x]), cmp.Compare(x, y))
	})
	if len(all) == 0 {
		return "", nil
	}
	for _, other := range all[1:] {
		if w.asked[all[0]] == 0 || w.asked[other] > 0 {
			others = append(others, other)
		}
	}
	return all[0], others[:min(len(others), maxOthers)]
}

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
