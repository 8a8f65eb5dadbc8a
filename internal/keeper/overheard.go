package keeper

import (
	"net"
	"sync"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// overheard keeps what the guard had to say about the connections that a self-test
// must be able to make: the probe sees only that they end.
type overheard struct {
	mu      sync.Mutex
	reasons map[string]string // by name; as many as the plan has
}

// about begins to listen for what plan tries to reach.
func (o *overheard) about(plan selftest.Plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reasons = map[string]string{}
	for _, list := range [][]selftest.Target{plan.Required, plan.Reach} {
		for _, t := range list {
			o.reasons[t.Name] = ""
		}
	}
}

// hear takes in an event of the guard's. A connection that carried nothing back
// has failed, whoever's fault that was.
func (o *overheard) hear(e audit.Event) {
	if e.Asker != audit.BySelfTest || e.Kind != audit.Connect && e.Kind != audit.HTTP || e.Verdict == audit.Allow && e.In > 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.reasons[e.Name]; ok {
		o.reasons[e.Name] = e.Reason
	}
}

// explain says in the checks that failed what the guard knows of them.
func (o *overheard) explain(r selftest.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range r.Checks {
		c := &r.Checks[i]
		host, _, err := net.SplitHostPort(c.Target)
		if err == nil && !c.OK && c.Want == selftest.Reachable && o.reasons[host] != "" {
			c.Detail += "; the name gate says: " + text.Clean(o.reasons[host])
		}
	}
}
