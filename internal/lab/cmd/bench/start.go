package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "embed"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	dnsLatency   = 20 * time.Millisecond
	startRounds  = 9
	scriptRounds = 3
	scriptNames  = 100
	startGoal    = 60 * time.Millisecond
)

// firewallScript is what is often used instead: see its head.
//
//go:embed init-firewall.sh
var firewallScript []byte

// A shell says when it executes what is measured, in the same process; another
// says when it was executed in turn.
const (
	clock  = `echo $EPOCHREALTIME`
	before = clock + `; exec "$@"`
)

// timed runs args as the PID 1 of the box, followed by a shell that says when it
// began; it returns the time from the exec of args to the exec of that shell
// (which includes the shell's own start; see bareStart) and what was said on
// standard error.
func (b *bench) timed(box *lab.Box, args ...string) (time.Duration, string) {
	args = append([]string{"bash", "-c", before, "bash"}, args...)
	r := box.Run(lab.Cmd{Args: append(args, "bash", "-c", clock), Timeout: time.Minute})
	lines := strings.Fields(r.Stdout)
	if r.Code != 0 || len(lines) != 2 {
		b.Fatalf("a measured start failed: %s", r)
	}
	var at [2]float64
	for i, s := range lines {
		var err error
		if at[i], err = strconv.ParseFloat(s, 64); err != nil {
			b.Fatalf("a time of a measured start: %v", err)
		}
	}
	return time.Duration((at[1] - at[0]) * float64(time.Second)), r.Stderr
}

// starts holds the times of one kind of start.
type starts struct {
	label string
	box   func() *lab.Box // a fresh one each time, as containers are: nothing is left of the start before
	args  []string

	took  []time.Duration
	steps map[string][]time.Duration
	order []string
}

func (s *starts) add(took time.Duration, stderr string) {
	s.took = append(s.took, took)
	for _, st := range parseSteps(stderr) {
		if s.steps == nil {
			s.steps = map[string][]time.Duration{}
		}
		if s.steps[st.name] == nil {
			s.order = append(s.order, st.name)
		}
		s.steps[st.name] = append(s.steps[st.name], st.took)
	}
}

func measureStart(b *bench) {
	b.lab.DNS.SetLatency(dnsLatency)
	defer b.lab.DNS.SetLatency(0)
	bare := &starts{label: "nothing", box: func() *lab.Box { return b.lab.NewBox(lab.BoxOptions{}) }}
	kinds := []*starts{bare}
	bySize := map[int]*starts{}
	for _, n := range []int{10, 100, 1000, maxNames} {
		s := &starts{box: func() *lab.Box { return b.confined(n) }, args: []string{"agent-init", "run", "--log-level", "info", "--"}}
		bySize[n] = s
		kinds = append(kinds, s)
	}
	script4, script := b.script("4"), b.script("46")

	for round := range startRounds {
		for _, k := range kinds {
			k.add(b.timed(k.box(), k.args...))
		}
		// The scripts in between, so that all see the same load.
		if round%(startRounds/scriptRounds) == 0 {
			script4.add(b.timed(script4.box(), script4.args...))
			script.add(b.timed(script.box(), script.args...))
		}
	}

	// The shell that tells the time takes a while to start, everywhere.
	shell := median(bare.took)
	net := func(s *starts) time.Duration { return median(s.took) - shell }
	r := b.report
	r.heading("Start: from exec of `agent-init run` to exec of the agent, self-test included, DNS at %v", dnsLatency)
	for _, n := range []int{10, 100, 1000, maxNames} {
		s := bySize[n]
		f := r.figure(fmt.Sprintf("allowlist of %s names", thousands(n)), ms(net(s)), "").
			note("%s…%s", ms(slices.Min(s.took)-shell), ms(slices.Max(s.took)-shell))
		if n == scriptNames {
			f.goal = fmt.Sprintf("≤ %v and the DNS server's %v", startGoal, dnsLatency)
			f.met(net(s) <= startGoal+dnsLatency)
		}
	}
	grow := ratio(net(bySize[maxNames]), net(bySize[10]))
	r.figure("10,000 names : 10 names", times(grow), "≤ 1.2×").met(grow <= 1.2)
	agent := net(bySize[scriptNames])
	r.figure("shell script, 100 names, IPv4 only", ms(net(script4)), "").note("getent ahostsv4, one iptables each")
	r.figure("shell script, 100 names, IPv4 and IPv6", ms(net(script)), "").note("getent ahosts, one iptables or ip6tables per address")
	x4, x := ratio(net(script4), agent), ratio(net(script), agent)
	r.figure("agent-init is faster than the IPv4-only script", times(x4), "≥ 20×").met(x4 >= 20)
	r.figure("agent-init is faster than the whole script", times(x), "≥ 20×").met(x >= 20)

	r.heading("Where a start's time goes (medians of each step)")
	small, large := bySize[10], bySize[maxNames]
	sum := time.Duration(0)
	for _, name := range large.order {
		if name == "confined" {
			continue
		}
		sum += median(large.steps[name])
		r.figure(name, ms(median(large.steps[name])), "").note("with 10 names %s", ms(median(small.steps[name])))
	}
	r.figure("before and after the steps", ms(net(large)-median(large.steps["confined"])), "").
		note("with 10 names %s", ms(net(small)-median(small.steps["confined"])))
}

// script is the shell script in a box like those of agent-init.
func (b *bench) script(families string) *starts {
	var names strings.Builder
	for i := range scriptNames {
		fmt.Fprintln(&names, nameOf(i))
	}
	box := func() *lab.Box {
		return b.lab.NewBox(lab.BoxOptions{
			Caps: append(lab.DefaultCaps(), "NET_RAW"),
			Files: []lab.File{
				{Path: "/usr/local/bin/init-firewall.sh", Data: firewallScript, Mode: 0o755},
				{Path: "/etc/names", Data: []byte(names.String())},
			},
		})
	}
	return &starts{box: box, args: []string{"/usr/local/bin/init-firewall.sh", families}}
}

type stepTime struct {
	name string
	took time.Duration
}

// parseSteps reads what --log-level info says of each step of the start.
func parseSteps(stderr string) []stepTime {
	var out []stepTime
	for line := range strings.Lines(stderr) {
		head, took, ok := strings.Cut(strings.TrimSpace(line), " took=")
		_, msg, ok2 := strings.Cut(head, "level=INFO msg=")
		d, err := time.ParseDuration(took)
		if ok && ok2 && err == nil {
			out = append(out, stepTime{strings.Trim(msg, `"`), d})
		}
	}
	return out
}
