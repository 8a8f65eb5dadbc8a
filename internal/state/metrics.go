package state

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/pkg/audit"
)

// Metrics are those of the state. How many there are depends on the policy alone.
func (s *State) Metrics(version string, now time.Time) (all []metric.Metric) {
	put := func(name, kind, help string, points ...metric.Point) {
		all = append(all, metric.Metric{Name: "agent_init_" + name, Kind: kind, Help: help, Points: points})
	}
	healthy, _ := s.Healthy(now)
	g := s.Guard.Stats
	put("info", "gauge", "What runs.", metric.Is(1, "version", version, "mode", s.Mode, "backend", s.Firewall.Backend))
	put("healthy", "gauge", "1 if the container is confined and all parts work.", metric.Is(number(healthy)))
	put("published_timestamp_seconds", "gauge", "When this was written: at least every 10 seconds.", metric.Is(stamp(s.Published)))
	put("monitor", "gauge", "1 in monitor mode: what the policy denies is let through.", metric.Is(number(s.Monitor)))
	put("dns_queries_total", "counter", "Questions of the agent, by what was decided.",
		metric.Is(g.Allowed, "decision", "allow"), metric.Is(g.Denied, "decision", "deny"))
	put("dns_cached_total", "counter", "Questions that were answered from the cache.", metric.Is(g.Cached))
	put("dns_upstream_queries_total", "counter", "Questions to upstream servers.", metric.Is(g.Asked))
	put("dns_upstream_failures_total", "counter", "Of those, without an answer.", metric.Is(g.Failed))
	put("dns_upstream_seconds", "summary", "Time that upstream servers took.", metric.Took(g.AskedNanos, g.Asked)...)
	put("dns_upstream_servers", "gauge", "Upstream servers that are asked.", metric.Is(len(s.DNS.Servers)))
	put("dns_upstream_answering", "gauge", "1 if the last question to upstream servers was answered.", metric.Is(number(s.DNS.Trouble(now) == "")))
	put("dns_upstream_answered_timestamp_seconds", "gauge", "When an upstream server answered last.", metric.Is(stamp(s.DNS.Answered)))
	put("dns_stripped_addresses_total", "counter", "Addresses taken out of answers.", metric.Is(g.Stripped))
	put("gate_connections_total", "counter", "Connections at the name gate, by what was decided.",
		metric.Is(g.Passed, "decision", "allow"), metric.Is(g.Refused, "decision", "deny"))
	put("gate_relays", "gauge", "Connections through the name gate now.", metric.Is(g.Relays))
	put("drops_total", "counter", "Refused packets that were recorded; the kernel limits how many.", metric.Is(g.Drops))
	put("lease_names", "gauge", "Names with open addresses.", metric.Is(s.Leases.Names))
	put("lease_elements", "gauge", "Addresses and ports that are open by name.", metric.Is(s.Leases.Elements))
	put("lease_seconds", "summary", "Time to open an address in the kernel, as the guard sees it.", metric.Took(g.LeaseNanos, g.Leases)...)
	put("policy_rules", "gauge", "Rules of the policy, by kind.",
		metric.Is(s.Policy.Names, "kind", "name"), metric.Is(s.Policy.Wildcards, "kind", "wildcard"), metric.Is(s.Policy.Addresses, "kind", "address"), metric.Is(s.Policy.Denied, "kind", "deny"))
	put("policy_loaded_timestamp_seconds", "gauge", "When the policy was read last.", metric.Is(stamp(s.Policy.Loaded)))
	put("policy_reload_failed", "gauge", "1 if the last reload was refused.", metric.Is(number(s.Policy.Fault != "")))
	put("grants", "gauge", "What was granted at run time, and what the agent asks for.",
		metric.Is(s.Grants.Allowed, "kind", "allow"), metric.Is(s.Grants.Denied, "kind", "deny"), metric.Is(s.Grants.Requests, "kind", "request"))
	put("guard_up", "gauge", "1 if the guard serves.", metric.Is(number(s.Guard.OK)))
	put("guard_restarts_total", "counter", "How often the guard was restarted.", metric.Is(s.Guard.Restarts))
	s.Broker.writeMetrics(put)
	put("rules_repairs_total", "counter", "How often changed rules were repaired.", metric.Is(s.Firewall.Repairs))
	put("rules_verified_timestamp_seconds", "gauge", "When the rules were last found to be as planned.", metric.Is(stamp(s.Firewall.Verified)))
	if s.SelfTest != nil {
		put("selftest_ok", "gauge", "1 if the self-test passed.", metric.Is(number(s.SelfTest.OK)))
		put("selftest_timestamp_seconds", "gauge", "When it ran.", metric.Is(stamp(s.SelfTest.Time)))
	}
	put("audit_failing", "gauge", "1 if events can't be written.", metric.Is(number(s.Audit.Fault != "")))
	put("audit_tampered_total", "counter", "How often the log was found to be changed by somebody else.", metric.Is(s.Audit.Found))
	s.Audit.writeMetrics(put)
	put("start_timestamp_seconds", "gauge", "When agent-init was started.", metric.Is(stamp(s.Started)))
	return all
}

// ReadMetrics reads what the keeper of this container has published of them.
func ReadMetrics() ([]byte, error) {
	dir, err := Find()
	if err != nil {
		return nil, NotRunning(err)
	}
	return dir.metrics(time.Now())
}

// metrics reads them. Those of a keeper that has not reported for a while are an error: they would go on saying that all is
// well.
func (d Dir) metrics(now time.Time) ([]byte, error) {
	path := filepath.Join(string(d), MetricFile)
	st, err := os.Stat(path)
	if err != nil {
		return nil, NotRunning(err)
	}
	if age := now.Sub(st.ModTime()); age > stale || age < -stale {
		return nil, fault.New(fault.Failure, "see agent-init status", "the metrics are from %s: the keeper has not reported since", st.ModTime().UTC().Format(time.RFC3339))
	}
	return os.ReadFile(path)
}

// writeMetrics writes the head of the log. A label with the hash would make a series of each value, and a number has no
// more than 52 bits: so two have its first 24 digits, twelve each.
func (a Audit) writeMetrics(put func(name, kind, help string, points ...metric.Point)) {
	half := func(i int) uint64 {
		n, _ := strconv.ParseUint(a.Head.Hash[i:i+audit.MinHash/2], 16, 64) // the keeper's own: hexadecimal digits
		return n
	}
	if len(a.Head.Hash) < audit.MinHash {
		return
	}
	put("audit_head", "gauge", "The number of the log's last line.", metric.Is(a.Head.Seq))
	put("audit_head_hash", "gauge", "The first 24 hexadecimal digits of its SHA-256, in two numbers of 12.",
		metric.Is(half(0), "digits", "1-12"), metric.Is(half(audit.MinHash/2), "digits", "13-24"))
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
