package inspect

import (
	"strings"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// checkedWays are the entries whose connections do not go the usual way, through the name gate.
type checkedWays struct {
	Inspected []route.Inspected `json:"inspected,omitempty"`
	Proxy     string            `json:"proxy,omitempty"`      // by which connections go out
	Direct    []policy.Entry    `json:"direct,omitempty"`     // past the gate, because an entry says so
	ByAddress []policy.Entry    `json:"by_address,omitempty"` // past the gate, because nobody knows what the port carries
}

func waysOf(p *policy.Policy) checkedWays {
	ways := checkedWays{Inspected: p.Settings.Inspected}
	if p.Settings.UpstreamProxy.Host != "" {
		ways.Proxy = p.Settings.UpstreamProxy.String()
	}
	for r := range p.Rules() {
		if r.Deny || r.Name == "" {
			continue
		}
		direct, unknown := false, false
		for _, port := range r.Ports {
			direct = direct || p.Direct(r.Name, port) != nil
			unknown = unknown || port.Proto == policy.TCP && p.Way(r.Name, port) == policy.ByAddress && !r.Direct
		}
		switch {
		case direct:
			ways.Direct = append(ways.Direct, r.Entry())
		case unknown:
			ways.ByAddress = append(ways.ByAddress, r.Entry())
		}
	}
	return ways
}

// shownEntries bounds what check prints of each kind. check --json has all.
const shownEntries = 10

func (c checkedWays) write(w *text.Screen) {
	if c.Proxy != "" {
		w.Line("by upstream_proxy: %s. What goes past it stands in upstream_proxy.straight", c.Proxy)
	}
	for _, i := range c.Inspected {
		w.Line("inspected %s", spotOf(i))
		requestsOf(&i).write(w)
	}
	list := func(entries []policy.Entry, what string) {
		if len(entries) == 0 {
			return
		}
		w.Line("%s", what)
		for _, e := range entries[:min(len(entries), shownEntries)] {
			w.Row("", "%s  (%s)", e.Rule, e.Source)
		}
		if more := len(entries) - shownEntries; more > 0 {
			w.Row("", "and %d more, which --json has", more)
		}
	}
	list(c.Direct, "direct, past the name gate: whatever else is at their addresses is reached as well")
	list(c.ByAddress, "by address alone: no name is looked at on these ports. Where they carry TLS or HTTP, write tls or http behind the entry")
}

// spotOf names what is inspected as an entry does.
func spotOf(i route.Inspected) string {
	r := policy.Rule{Name: i.Name, Wildcard: i.Wildcard, Ports: []policy.Port{{Proto: policy.TCP, Number: i.Port}}}
	return strings.TrimSpace(r.String())
}
