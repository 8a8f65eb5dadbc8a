package guard

import (
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// probing tells what a self-test provokes from what the agent does: each start would otherwise look like an attack. The
// keeper says when a self-test begins and ends, so the agent can't say that of its own doings. Only what the plan tries
// is a probe's, meanwhile, if no other process was found to do it: nobody finds a probe.
type probing struct {
	active atomic.Bool // it may have ended; else nobody needs the lock

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
	for _, t := range slices.Concat(plan.Block, plan.Inspected, plan.Required, plan.Reach) {
		if a, err := netip.ParseAddr(t.Name); err == nil {
			p.addrs[a] = true
		} else {
			p.names[t.Name] = true
		}
	}
	for _, a := range slices.Concat(plan.DNS, plan.TCP, plan.UDP, plan.Metadata) {
		p.addrs[a.Addr()] = true
	}
	for _, a := range plan.Ping {
		p.addrs[a] = true
	}
	p.until = time.Now().Add(selftest.Time)
	p.active.Store(true)
}

func (p *probing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(settling)
}

// tries says whether a self-test is under way that tries name or a, either of which may be none.
func (p *probing) tries(name string, a netip.Addr) bool {
	if !p.active.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().After(p.until) {
		p.active.Store(false)
		return false
	}
	return name != "" && p.names[name] || a.IsValid() && p.addrs[a.Unmap()]
}

// mark says in e if a probe has caused it.
func (p *probing) mark(e audit.Event) audit.Event {
	a, _ := netip.ParseAddr(e.IP)
	if e.Asker == audit.Agent && e.PID == 0 && p.tries(e.Name, a) {
		e.Asker = audit.BySelfTest
	}
	return e
}

// adoptPlan begins a self-test by the plan in file, or ends it if there is none.
func (p *probing) adoptPlan(file *os.File) error {
	if file == nil {
		p.end()
		return nil
	}
	var plan selftest.Plan
	if err := wire.ReadMemfd(file, &plan); err != nil {
		return err
	}
	p.begin(plan)
	return nil
}
