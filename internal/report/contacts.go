package report

import (
	"cmp"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

const maxListed = 500 // of contacts, and of refusals

// Contact is a name, or an address, that the agent has reached.
type Contact struct {
	Name        string    `json:"name"`
	Ports       few       `json:"ports"`
	Ways        few       `json:"ways"` // gate, inspected, route NAME, by address
	Addresses   few       `json:"addresses"`
	Lookups     uint64    `json:"lookups"`
	Connections uint64    `json:"connections"`
	Requests    uint64    `json:"requests"`
	Out         uint64    `json:"bytes_out"`
	In          uint64    `json:"bytes_in"`
	LetOut      uint64    `json:"let_out"` // in monitor mode
	Unseen      bool      `json:"unseen"`  // it may be reached by address, where no bytes are counted
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	By          few       `json:"by"`    // processes
	Rules       few       `json:"rules"` // that allow it
}

func (c *Contact) weight() uint64 {
	return c.Out + c.In + 1000*(c.Connections+c.Requests) + c.Lookups
}

// contact takes in what was allowed to the agent, or let out.
func (t *tally) contact(e audit.Event) {
	if e.Name == "" && e.IP == "" || e.Kind == audit.DNS && e.IP == "" { // or there is no such name
		return
	}
	n := 1 + e.Suppressed
	c := t.contacts.of(cmp.Or(e.Name, e.IP), func() *Contact { return &Contact{Name: cmp.Or(e.Name, e.IP), First: e.Time} })
	switch e.Kind {
	case audit.DNS:
		c.Lookups += n
		t.totals.Lookups += n
		c.way(t.policy, e)
	case audit.Connect:
		c.Connections += n
		t.totals.Connections += n
	case audit.HTTP, audit.Broker:
		c.Requests += n
		t.totals.Requests += n
	}
	if e.Kind == audit.Connect || e.Kind == audit.HTTP {
		c.Ways.add(wayOf(t.policy, e))
	}
	if e.Kind == audit.Broker && e.Route != "" {
		c.Ways.add("route " + e.Route)
	} else if e.Kind == audit.Broker {
		c.Ways.add(wayInspected)
	}
	c.Out, c.In = c.Out+e.Out, c.In+e.In
	t.totals.Out, t.totals.In = t.totals.Out+e.Out, t.totals.In+e.In
	if e.Enforce != "" {
		c.LetOut += n
	}
	if e.Port != 0 {
		c.Ports.add(fmt.Sprintf("%d/%s", e.Port, cmp.Or(e.Proto, "tcp")))
	}
	c.Addresses.add(e.IP)
	c.By.add(e.Comm)
	c.Rules.add(e.Rule)
	c.Last = later(c.Last, e.Time)
}

const (
	wayGate      = "gate"
	wayInspected = "inspected"
	wayAddress   = "by address"
)

func wayOf(p *policy.Policy, e audit.Event) string {
	if p.Way(e.Name, policy.Port{Proto: policy.TCP, Number: e.Port}) == policy.Inspected {
		return wayInspected
	}
	return wayGate
}

// way notes whether a name has ports that nothing looks into: what goes there shows as a look-up alone.
func (c *Contact) way(p *policy.Policy, e audit.Event) {
	for _, port := range p.Ports(e.Name) {
		if p.Way(e.Name, port) == policy.ByAddress {
			c.Ways.add(wayAddress)
			c.Unseen = true
		}
	}
}

// Inbound is what came from beyond the container's network.
type Inbound struct {
	Port    uint16    `json:"port"`
	Allowed uint64    `json:"allowed"`
	Refused uint64    `json:"refused"`
	From    few       `json:"from"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

const maxInbound = 64

func (t *tally) outside(e audit.Event) {
	in := t.inbound.of(fmt.Sprint(e.Port), func() *Inbound { return &Inbound{Port: e.Port, First: e.Time} })
	if inspect.Denied(e) {
		in.Refused += 1 + e.Suppressed
	} else {
		in.Allowed += 1 + e.Suppressed
	}
	in.From.add(e.IP)
	in.Last = later(in.Last, e.Time)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
