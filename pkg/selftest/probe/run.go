// Package probe makes the probes of a self-test, from the agent's side.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// probe is one attempt. Its check has all but what came of it.
type probe struct {
	check   selftest.Check
	timeout time.Duration
	run     func(context.Context) outcome
}

// atOnce is how many probes are under way at a time. Each has a socket or two, and
// a process may have as few files as the keeper starts with.
const atOnce = 48

// Run tries everything in p, many at once, and reports. In a confined process it
// takes as long as the slowest of the required targets. Failures are in the report;
// Run has no error of its own.
func Run(ctx context.Context, p selftest.Plan) selftest.Report {
	return runWith(ctx, p, "/etc/resolv.conf")
}

func runWith(ctx context.Context, p selftest.Plan, resolvConf string) selftest.Report {
	started := time.Now()
	probes := probesOf(plan{p}, resolvConf)
	checks := tryAll(ctx, probes)
	return selftest.NewReport(started, time.Since(started), checks)
}

func tryAll(ctx context.Context, probes []probe) []selftest.Check {
	checks := make([]selftest.Check, len(probes))
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i, pr := range probes {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			checks[i] = pr.do(ctx)
		})
	}
	wg.Wait()
	return checks
}

func (pr probe) do(run context.Context) selftest.Check {
	ctx, cancel := context.WithTimeout(run, pr.timeout)
	defer cancel()
	start := time.Now()
	o := settle(run, pr.run(ctx))
	c := pr.check
	c.Got, c.Detail = o.got, selftest.Clean(o.detail)
	c.OK = c.Got == c.Want
	c.Millis = selftest.Millis(time.Since(start))
	return c
}

// plan is what the probes are made from.
type plan struct{ selftest.Plan }

// probesOf lists the probes of p in the order of the report.
func probesOf(p plan, resolvConf string) []probe {
	if p.BlockTimeout <= 0 {
		p.BlockTimeout = selftest.DefaultBlockTimeout
	}
	if p.ReachTimeout <= 0 {
		p.ReachTimeout = selftest.DefaultReachTimeout
	}
	var probes []probe
	block := func(name, target, family string, run func(context.Context) outcome) {
		c := selftest.Check{Name: name, Target: target, Family: family, Want: selftest.Blocked}
		probes = append(probes, probe{c, p.BlockTimeout, run})
	}
	system := p.System
	if len(system) == 0 {
		system = nameservers(resolvConf)
	}
	resolver := resolverFor(p.System)

	for _, missing := range p.Missing() {
		block("plan", missing, "", func(context.Context) outcome {
			return unknown(errors.New("the plan has none"))
		})
	}
	for _, name := range p.Denied {
		for _, s := range system {
			block("dns-system", s.String()+"/udp", family(s.Addr()), askDenied("udp", s, name))
			block("dns-system", s.String()+"/tcp", family(s.Addr()), askDenied("tcp", s, name))
		}
	}
	for _, name := range p.Denied {
		for _, s := range p.DNS {
			block("dns-direct", s.String()+"/udp", family(s.Addr()), askDenied("udp", s, name))
			block("dns-direct", s.String()+"/tcp", family(s.Addr()), askDenied("tcp", s, name))
		}
	}
	for _, name := range p.Denied {
		t := selftest.Target{Name: name, Port: 443}
		block("denied-name", t.String(), "", p.connectName(resolver, t))
	}
	for _, a := range p.TCP {
		block("tcp", a.String(), family(a.Addr()), p.connectAddr(a))
	}
	for _, a := range p.UDP {
		block("udp", a.String(), family(a.Addr()), sendQUIC(a))
	}
	for _, a := range p.Ping {
		block("ping", a.String(), family(a), ping(a))
	}
	for _, a := range p.Metadata {
		block("metadata", a.String(), family(a.Addr()), p.connectAddr(a))
	}
	for _, pp := range privileges() {
		block(pp.name, pp.target, "", pp.run)
	}
	for _, t := range p.Block {
		block("block", t.String(), "", p.connectName(resolver, t))
	}
	reach := func(name string, targets []selftest.Target) {
		for _, t := range targets {
			c := selftest.Check{Name: name, Target: t.String(), Want: selftest.Reachable}
			// Each try has p.ReachTimeout; this is only the outer bound.
			probes = append(probes, probe{c, tries*p.ReachTimeout + tryPause, reachTarget(resolver, system, t, p.ReachTimeout)})
		}
	}
	reach("required", p.Required)
	reach("reach", p.Reach)
	return probes
}

func family(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func answered(format string, a ...any) outcome {
	return reachable(fmt.Sprintf("answered "+format, a...))
}
