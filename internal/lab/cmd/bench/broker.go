package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	longRequest = 100 // KiB; agents send the whole conversation each time
	askRounds   = 300
	openStreams = 1000

	firstGoal   = 500 * time.Microsecond
	streamGoal  = 0.9
	streamsGoal = 24 << 20
	routeGoal   = 10 * time.Millisecond
)

// asked is what asking an API through something costs, beside asking it straight from the same box.
type asked struct {
	first, long, bulk timing
	rate              rates
	idle, held        usage // before anything is asked, and with many streams open
}

func measureBroker(b *bench) {
	b.serveModel()
	r := b.report
	r.heading("The broker: an API asked through it, and straight with TLS")
	var c asked
	var limited timing
	b.broker(func(box *lab.Box, run command, _ func() usage) {
		b.limitLink(1e9 / 8)
		b.found(&limited, "ask-bulk", box.Exec(run("ask-bulk", bulkRounds)))
	})
	b.broker(func(box *lab.Box, run command, use func() usage) { c = b.ask(box, run, use) })
	added := c.first.Gated - c.first.Direct
	r.figure("first byte of a stream, straight", us(c.first.Direct), "").note("over a connection that is open already")
	r.figure("  through the broker, added", us(added), "≤ 500 µs").met(added <= firstGoal)
	long := c.long.Gated - c.long.Direct
	r.figure(fmt.Sprintf("with a request of %d KiB, straight", longRequest), us(c.long.Direct), "")
	r.figure("  through the broker, added", us(long), "≤ 500 µs").met(long <= firstGoal)
	r.figure("short answers a second, straight", thousands(int(c.rate.Direct)), "").note("%d clients", rateClients)
	r.figure("  through the broker", thousands(int(c.rate.Gated)), "").note("%.2f×", ratio(c.rate.Gated, c.rate.Direct))
	for _, s := range []struct {
		limit string
		took  timing
	}{{"no limit but the processors", c.bulk}, {"a link of 1.0 Gbit/s", limited}} {
		share := ratio(s.took.Direct, s.took.Gated)
		r.figure("one stream, straight", streamRate(s.took.Direct), "").note("%s of events, %s", mib(streamBytes), s.limit)
		r.figure("  through the broker", streamRate(s.took.Gated), "")
		r.figure("  through the broker : straight", times(share), "≥ 0.9×").met(share >= streamGoal)
	}
	r.figure(fmt.Sprintf("%s streams open, private and dirty", thousands(openStreams)), mib(c.held.private), "≤ 24 MiB").
		met(c.held.private <= streamsGoal).note("%s before; resident %s, and %s before", mib(c.idle.private), mib(c.held.rss), mib(c.idle.rss))
	b.startsByRoute()

	r.heading("The broker beside gateways: an API asked through each, and past it from the same box")
	b.describeGateway("the broker", "holds the key; judges path, headers and body; counts tokens", c)
	for _, g := range gateways() {
		b.describeGateway(g.name, g.like, b.askGateway(g))
	}
}

// command is how the client is run.
type command func(what string, n int) lab.Cmd

// ask measures one way to an API; use says what memory it takes.
func (b *bench) ask(box *lab.Box, run command, use func() usage) (c asked) {
	c.idle = use()
	for _, m := range []struct {
		what string
		n    int
		into any
	}{{"ask-first", askRounds, &c.first}, {"ask-first-long", askRounds, &c.long}, {"ask-rate", rateRounds, &c.rate}, {"ask-bulk", bulkRounds, &c.bulk}} {
		b.found(m.into, m.what, box.Exec(run(m.what, m.n)))
	}
	client := box.ExecStart(run("ask-hold", openStreams))
	if !client.WaitOutput("holding", clientTime) {
		b.Fatalf("%d streams could not be opened: %s", openStreams, client.Wait(time.Second))
	}
	time.Sleep(idleTime)
	c.held = use()
	return c
}

// broker runs do in a confined box with a route.
func (b *bench) broker(do func(box *lab.Box, run command, use func() usage)) {
	box := b.routed(true, b.clientBind()...)
	p := b.runConfined(box)
	defer box.Kill()
	do(box, func(what string, n int) lab.Cmd {
		return lab.Cmd{Timeout: clientTime, Args: []string{"agent-init", "exec", "--", clientPath, "-client", what, "-n", strconv.Itoa(n)}}
	}, func() usage { return b.usage(b.childPID(p.Pid(), "broker")) })
}

// routed is a box whose policy has a name, the API's other address, and a route to the API or none.
func (b *bench) routed(route bool, binds ...lab.Bind) *lab.Box {
	text := fmt.Sprintf("domains: [%s required, '%s:%d']\n", nameOf(0), directAddr, apiPort)
	if route {
		text += "broker:\n  anthropic: {to: '" + apiURL + "/', credential: 'env:ANTHROPIC_API_KEY'}\n"
	}
	return b.lab.NewBox(lab.BoxOptions{
		Binary: b.binary, Binds: binds, Env: []string{"ANTHROPIC_API_KEY=" + apiKey},
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(text)}},
	})
}

// startsByRoute times starts with a route and without, in turns.
func (b *bench) startsByRoute() {
	bare := &starts{box: func() *lab.Box { return b.lab.NewBox(lab.BoxOptions{}) }}
	args := []string{"agent-init", "run", "--log-level", "info", "--"}
	without := &starts{box: func() *lab.Box { return b.routed(false) }, args: args}
	with := &starts{box: func() *lab.Box { return b.routed(true) }, args: args}
	for range startRounds {
		for _, s := range []*starts{bare, without, with} {
			s.add(b.timed(s.box(), s.args...))
		}
	}
	shell, base := median(bare.took), median(without.took)
	added := median(with.took) - base
	b.report.figure("start without a route", ms(base-shell), "")
	b.report.figure("  with one, added", ms(added), "≤ 10 ms").met(added <= routeGoal)
}

func us(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }

func streamRate(d time.Duration) string {
	return fmt.Sprintf("%.0f MiB/s", streamBytes/(1<<20)/d.Seconds())
}
