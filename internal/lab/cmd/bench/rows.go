package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// row is one budget.
type row struct {
	name   string // for -only
	what   string
	unit   string
	budget float64 // 0: what is measured has a table of its own
	least  bool    // the budget is the least that may be, not the most
	than   string  // the peer that the budget is a multiple of, or ""
	turns  int
	ours   func(*bench) float64
	peers  []peer
}

// peer is a program that is compared.
type peer struct {
	name    string
	program string // it is left out where there is none
	measure func(*bench) float64
}

// rows are the budgets, in the order of the page.
func rows() []row {
	return []row{
		{name: "start", what: "start with 10 to 10,000 names, the slowest, self-test included, DNS at 20 ms", unit: " ms", budget: 120, turns: 5,
			ours: slowestStart, peers: []peer{{"squid, no self-test", "squid", startSquid}, {"shell script, 100 names", "iptables", startScript}}},
		{name: "connection", what: "TLS connection through the gate, added", unit: " ms", budget: 2, than: "haproxy", turns: 3,
			ours: gated(addedSetup), peers: crossed(addedSetup)},
		{name: "connections", what: "TLS connections a second through the gate : past it", unit: "×", budget: 0.65, least: true, turns: 3,
			ours: gated(shareOfConnections), peers: crossed(shareOfConnections)},
		{name: "stream", what: "one https stream through the gate : past it, processor-bound", unit: "×", budget: 0.8, least: true, turns: 3,
			ours: gated(shareOfStream), peers: crossed(shareOfStream)},
		{name: "link", what: "one https stream through the gate : past it, on 2.5 Gbit/s", unit: "×", budget: 0.995, least: true, turns: 3,
			ours: gated(shareOfLink)},
		{name: "answer", what: "cached DNS answer, p99 at 20,000 a second", unit: " ms", budget: 2, turns: 5,
			ours: ofGuard(latency), peers: []peer{{"dnsmasq", "dnsmasq", ofDnsmasq(latency)}}},
		{name: "answers", what: "cached DNS answers a second", unit: "/s", budget: 0.6, least: true, than: "dnsmasq", turns: 5,
			ours: ofGuard(answers), peers: []peer{{"dnsmasq", "dnsmasq", ofDnsmasq(answers)}}},
		{name: "request", what: "request through the broker, first byte, added", unit: " ms", budget: 1, turns: 3,
			ours: ofBroker(addedFirst), peers: ofGateways(addedFirst)},
		{name: "streams", what: "1,000 streams open through the broker, private and dirty", unit: " MiB", budget: 64, turns: 1,
			ours: ofBroker(heldStreams), peers: ofGateways(heldStreams)},
		{name: "inspected", what: "request of an inspected name over an open connection, added", unit: " ms", budget: 1.5, than: "squid", turns: 3,
			ours: lookInside, peers: breakers()},
		{name: "keystroke", what: "keystroke to echo in a session", unit: " ms", budget: 2, than: "tmux", turns: 3,
			ours: echoOf(ownSession), peers: []peer{{"tmux", "tmux", echoOf(tmux)}, {"direct", "sh", echoOf(direct)}}},
		{name: "cat", what: "`cat` of 100 MB in a session", unit: " MB/s", budget: 0.6, least: true, than: "direct", turns: 3,
			ours: catIn(ownSession), peers: []peer{{"direct", "sh", catIn(direct)}, {"tmux", "tmux", catIn(tmux)}}},
		{name: "supervision", what: "`/bin/true` supervised, added", unit: " ms", budget: 15, turns: 3,
			ours: supervised("agent-init", "run", "--unsafe-no-firewall", "--selftest", "off", "--"), peers: []peer{
				{"tini", "tini", supervised("tini", "-s", "--")}, {"dumb-init", "dumb-init", supervised("dumb-init", "--")}}},
		{name: "memory-100", what: "100 names, private and dirty", unit: " MiB", budget: 12, turns: 1,
			ours: memoryOf(100), peers: []peer{{"haproxy, 1 name", "haproxy", haproxyMemory}}},
		{name: "memory-10000", what: "10,000 names, private and dirty", unit: " MiB", budget: 48, turns: 1, ours: memoryOf(maxNames)},
		{name: "revoke", turns: 1, ours: func(b *bench) float64 { measureRevoke(b); return 0 }},
	}
}

// subject is a program that a row is measured of, and what was found in each turn.
type subject struct {
	peer
	found []float64
}

// subjects are agent-init, another build of it if one is compared, and the peers that are installed.
func (r row) subjects(b *bench) []*subject {
	all := []*subject{{peer: peer{"agent-init", "", r.ours}}}
	if b.before != "" {
		all = append(all, &subject{peer: peer{"before", "", r.ours}})
	}
	for _, p := range r.peers {
		if _, err := exec.LookPath(p.program); err == nil {
			all = append(all, &subject{peer: p})
		} else if p.name == r.than {
			b.Fatalf("%s: the budget is a multiple of what %s takes: %v", r.name, p.name, err)
		}
	}
	return all
}

// tell adds the row to the report: the medians, and whether the budget is kept.
func (r row) tell(to *report, subjects []*subject) {
	got, value := median(subjects[0].found), ""
	var notes []string
	for _, s := range subjects {
		m := median(s.found)
		note := s.name + " " + r.value(m)
		if len(s.found) > 1 {
			note += " (" + number(slices.Min(s.found)) + "…" + number(slices.Max(s.found)) + ")"
		}
		notes = append(notes, note)
		if s.name == r.than && m > 0 {
			got /= m
			value = fmt.Sprintf("%.2f× %s", got, r.than)
		}
	}
	if r.than == "" {
		value = r.value(got)
	}
	kept := got <= r.budget
	if r.least {
		kept = got >= r.budget
	}
	to.figure(r.title(), value, r.limit()).met(kept).note("%s", strings.Join(notes, ", "))
}

func (r row) title() string { return "`" + r.name + "`: " + r.what }

func (r row) value(v float64) string { return number(v) + r.unit }

// limit writes the budget.
func (r row) limit() string {
	sign := "≤ "
	if r.least {
		sign = "≥ "
	}
	if r.than != "" {
		return fmt.Sprintf("%s%g× %s", sign, r.budget, r.than)
	}
	return sign + r.value(r.budget)
}
