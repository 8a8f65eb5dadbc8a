package main

import (
	"net/netip"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// probing keeps the refusals that the keeper's own self-test provokes out of the
// audit log, where each start would otherwise look like an attack. Only what the
// plan tries is left out, and only while it is being tried: the agent can't
// start a self-test of the keeper's.
type probing struct {
	mu    sync.Mutex
	names map[string]bool
	addrs map[netip.Addr]bool
	until time.Time
}

// settling is how long reports of refused packets may be on their way.
const settling = 25 * time.Millisecond

func (p *probing) begin(plan selftest.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names, p.addrs = map[string]bool{}, map[netip.Addr]bool{}
	for _, name := range plan.Denied {
		p.names[name] = true
	}
	for _, list := range [][]netip.AddrPort{plan.DNS, plan.TCP, plan.UDP, plan.Metadata} {
		for _, a := range list {
			p.addrs[a.Addr()] = true
		}
	}
	for _, a := range plan.Ping {
		p.addrs[a] = true
	}
	p.until = time.Now().Add(selfTestTime)
}

func (p *probing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(settling)
}

// caused says whether the self-test is what e is about.
func (p *probing) caused(e audit.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Verdict != audit.Deny || time.Now().After(p.until) {
		return false
	}
	if e.Kind == audit.DNS {
		return p.names[e.Name]
	}
	a, err := netip.ParseAddr(e.IP)
	atGate := e.Kind == audit.Connect || e.Kind == audit.HTTP // in the reduced form
	return err == nil && (e.Kind == audit.Drop || atGate) && p.addrs[a]
}
