package state

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// Metric is something that is counted or measured. Its name is public.
type Metric struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"` // gauge, counter or summary
	Help   string  `json:"help"`
	Points []Point `json:"points,omitempty"`
}

// Point is a value of a metric.
type Point struct {
	Part   string   `json:"part,omitempty"`   // of a summary: _sum or _count
	Labels []string `json:"labels,omitempty"` // names and values, in turn
	Value  float64  `json:"value"`
}

// is is n, by labels: names and values, in turn.
func is[N int | int64 | uint64](n N, labels ...string) Point {
	return Point{Labels: labels, Value: float64(n)}
}

// took is a summary of how long something took, as often as it was counted.
func took(nanos, times uint64) []Point {
	return []Point{{Part: "_sum", Value: float64(nanos/1000) / 1e6}, {Part: "_count", Value: float64(times)}}
}

// WriteMetrics writes them in the text format of Prometheus.
func WriteMetrics(w io.Writer, all []Metric) error {
	b := bufio.NewWriter(w)
	for _, m := range all {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.Kind)
		for _, p := range m.Points {
			fmt.Fprintf(b, "%s%s%s %s\n", m.Name, p.Part, labelled(p.Labels), strconv.FormatFloat(p.Value, 'f', -1, 64))
		}
	}
	return b.Flush()
}

func labelled(labels []string) string {
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	if pairs == nil {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// Metrics are those of the state. How many there are depends on the policy alone.
func (s *State) Metrics(version string, now time.Time) (all []Metric) {
	metric := func(name, kind, help string, points ...Point) {
		all = append(all, Metric{"agent_init_" + name, kind, help, points})
	}
	healthy, _ := s.Healthy(now)
	g := s.Guard.Stats
	metric("info", "gauge", "What runs.", is(1, "version", version, "mode", s.Mode, "backend", s.Firewall.Backend))
	metric("healthy", "gauge", "1 if the container is confined and all parts work.", is(number(healthy)))
	metric("monitor", "gauge", "1 in monitor mode: what the policy denies is let through.", is(number(s.Monitor)))
	metric("dns_queries_total", "counter", "Questions of the agent, by what was decided.",
		is(g.Allowed, "decision", "allow"), is(g.Denied, "decision", "deny"))
	metric("dns_cached_total", "counter", "Questions that were answered from the cache.", is(g.Cached))
	metric("dns_upstream_queries_total", "counter", "Questions to upstream servers.", is(g.Asked))
	metric("dns_upstream_failures_total", "counter", "Of those, without an answer.", is(g.Failed))
	metric("dns_upstream_seconds", "summary", "Time that upstream servers took.", took(g.AskedNanos, g.Asked)...)
	metric("dns_stripped_addresses_total", "counter", "Addresses taken out of answers.", is(g.Stripped))
	metric("gate_connections_total", "counter", "Connections at the name gate, by what was decided.",
		is(g.Passed, "decision", "allow"), is(g.Refused, "decision", "deny"))
	metric("gate_relays", "gauge", "Connections through the name gate now.", is(g.Relays))
	metric("drops_total", "counter", "Refused packets that were recorded; the kernel limits how many.", is(g.Drops))
	metric("lease_names", "gauge", "Names with open addresses.", is(s.Leases.Names))
	metric("lease_elements", "gauge", "Addresses and ports that are open by name.", is(s.Leases.Elements))
	metric("lease_seconds", "summary", "Time to open an address in the kernel, as the guard sees it.", took(g.LeaseNanos, g.Leases)...)
	metric("policy_rules", "gauge", "Rules of the policy, by kind.",
		is(s.Policy.Names, "kind", "name"), is(s.Policy.Wildcards, "kind", "wildcard"), is(s.Policy.Addresses, "kind", "address"), is(s.Policy.Denied, "kind", "deny"))
	metric("policy_loaded_timestamp_seconds", "gauge", "When the policy was read last.", is(stamp(s.Policy.Loaded)))
	metric("policy_reload_failed", "gauge", "1 if the last reload was refused.", is(number(s.Policy.Fault != "")))
	metric("grants", "gauge", "What was granted at run time, and what the agent asks for.",
		is(s.Grants.Allowed, "kind", "allow"), is(s.Grants.Denied, "kind", "deny"), is(s.Grants.Requests, "kind", "request"))
	metric("guard_up", "gauge", "1 if the guard serves.", is(number(s.Guard.OK)))
	metric("guard_restarts_total", "counter", "How often the guard was restarted.", is(s.Guard.Restarts))
	s.Broker.writeMetrics(metric)
	if t := s.Telemetry; t.UID != 0 {
		metric("telemetry_up", "gauge", "1 if the exporter serves, and the collector takes what it sends.", is(number(t.Trouble() == "")))
		metric("telemetry_restarts_total", "counter", "How often the exporter was restarted.", is(t.Restarts))
		metric("telemetry_events_total", "counter", "Events of the log, by what has become of them.",
			is(t.Sent, "result", "sent"), is(t.Refused, "result", "refused"), is(t.Lost, "result", "lost"))
		metric("telemetry_behind", "gauge", "Events of the log that the collector has not got yet.", is(t.Behind(s.Audit.Head.Seq)))
	}
	metric("rules_repairs_total", "counter", "How often changed rules were repaired.", is(s.Firewall.Repairs))
	metric("rules_verified_timestamp_seconds", "gauge", "When the rules were last found to be as planned.", is(stamp(s.Firewall.Verified)))
	if s.SelfTest != nil {
		metric("selftest_ok", "gauge", "1 if the self-test passed.", is(number(s.SelfTest.OK)))
		metric("selftest_timestamp_seconds", "gauge", "When it ran.", is(stamp(s.SelfTest.Time)))
	}
	metric("audit_failing", "gauge", "1 if events can't be written.", is(number(s.Audit.Fault != "")))
	s.Audit.writeMetrics(metric)
	metric("start_timestamp_seconds", "gauge", "When agent-init was started.", is(stamp(s.Started)))
	return all
}

// writeMetrics writes the head of the log. A label with the hash would make a series of each value, and a number has no
// more than 52 bits: so two have its first 24 digits, twelve each.
func (a Audit) writeMetrics(metric func(name, kind, help string, points ...Point)) {
	half := func(i int) uint64 {
		n, _ := strconv.ParseUint(a.Head.Hash[i:i+audit.MinHash/2], 16, 64) // the keeper's own: hexadecimal digits
		return n
	}
	if len(a.Head.Hash) < audit.MinHash {
		return
	}
	metric("audit_head", "gauge", "The number of the log's last line.", is(a.Head.Seq))
	metric("audit_head_hash", "gauge", "The first 24 hexadecimal digits of its SHA-256, in two numbers of 12.",
		is(half(0), "digits", "1-12"), is(half(audit.MinHash/2), "digits", "13-24"))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
