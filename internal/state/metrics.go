package state

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// WriteMetrics writes the state in the text format of Prometheus. The names are public.
func (s *State) WriteMetrics(w io.Writer, version string, now time.Time) error {
	b := bufio.NewWriter(w)
	metric := func(name, kind, help string, values ...any) {
		fmt.Fprintf(b, "# HELP agent_init_%s %s\n# TYPE agent_init_%s %s\n", name, help, name, kind)
		for i := 0; i+1 < len(values); i += 2 {
			fmt.Fprintf(b, "agent_init_%s%s %v\n", name, values[i], values[i+1])
		}
	}
	one := func(name, kind, help string, value any) { metric(name, kind, help, "", value) }
	healthy, _ := s.Healthy(now)
	g := s.Guard.Stats
	metric("info", "gauge", "What runs.", fmt.Sprintf("{version=%q,mode=%q,backend=%q}", version, s.Mode, s.Firewall.Backend), 1)
	one("healthy", "gauge", "1 if the container is confined and all parts work.", number(healthy))
	one("monitor", "gauge", "1 in monitor mode: what the policy denies is let through.", number(s.Monitor))
	metric("dns_queries_total", "counter", "Questions of the agent, by what was decided.",
		`{decision="allow"}`, g.Allowed, `{decision="deny"}`, g.Denied)
	one("dns_cached_total", "counter", "Questions that were answered from the cache.", g.Cached)
	one("dns_upstream_queries_total", "counter", "Questions to upstream servers.", g.Asked)
	one("dns_upstream_failures_total", "counter", "Of those, without an answer.", g.Failed)
	metric("dns_upstream_seconds", "summary", "Time that upstream servers took.", "_sum", inSeconds(g.AskedNanos), "_count", g.Asked)
	one("dns_stripped_addresses_total", "counter", "Addresses taken out of answers.", g.Stripped)
	metric("gate_connections_total", "counter", "Connections at the name gate, by what was decided.",
		`{decision="allow"}`, g.Passed, `{decision="deny"}`, g.Refused)
	one("gate_relays", "gauge", "Connections through the name gate now.", g.Relays)
	one("drops_total", "counter", "Refused packets that were recorded; the kernel limits how many.", g.Drops)
	one("lease_names", "gauge", "Names with open addresses.", s.Leases.Names)
	one("lease_elements", "gauge", "Addresses and ports that are open by name.", s.Leases.Elements)
	metric("lease_seconds", "summary", "Time to open an address in the kernel, as the guard sees it.", "_sum", inSeconds(g.LeaseNanos), "_count", g.Leases)
	metric("policy_rules", "gauge", "Rules of the policy, by kind.",
		`{kind="name"}`, s.Policy.Names, `{kind="wildcard"}`, s.Policy.Wildcards, `{kind="address"}`, s.Policy.Addresses, `{kind="deny"}`, s.Policy.Denied)
	one("policy_loaded_timestamp_seconds", "gauge", "When the policy was read last.", stamp(s.Policy.Loaded))
	one("policy_reload_failed", "gauge", "1 if the last reload was refused.", number(s.Policy.Fault != ""))
	metric("grants", "gauge", "What was granted at run time, and what the agent asks for.",
		`{kind="allow"}`, s.Grants.Allowed, `{kind="deny"}`, s.Grants.Denied, `{kind="request"}`, s.Grants.Requests)
	one("guard_up", "gauge", "1 if the guard serves.", number(s.Guard.OK))
	one("guard_restarts_total", "counter", "How often the guard was restarted.", s.Guard.Restarts)
	s.Broker.writeMetrics(metric)
	if t := s.Telemetry; t.UID != 0 {
		one("telemetry_up", "gauge", "1 if the exporter serves, and the collector takes what it sends.", number(t.Trouble() == ""))
		one("telemetry_restarts_total", "counter", "How often the exporter was restarted.", t.Restarts)
		metric("telemetry_events_total", "counter", "Events of the log, by what has become of them.",
			`{result="sent"}`, t.Sent, `{result="refused"}`, t.Refused, `{result="lost"}`, t.Lost)
		one("telemetry_behind", "gauge", "Events of the log that the collector has not got yet.", t.Behind(s.Audit.Head.Seq))
	}
	one("rules_repairs_total", "counter", "How often changed rules were repaired.", s.Firewall.Repairs)
	one("rules_verified_timestamp_seconds", "gauge", "When the rules were last found to be as planned.", stamp(s.Firewall.Verified))
	if s.SelfTest != nil {
		one("selftest_ok", "gauge", "1 if the self-test passed.", number(s.SelfTest.OK))
		one("selftest_timestamp_seconds", "gauge", "When it ran.", stamp(s.SelfTest.Time))
	}
	one("audit_failing", "gauge", "1 if events can't be written.", number(s.Audit.Fault != ""))
	s.Audit.writeMetrics(metric)
	one("start_timestamp_seconds", "gauge", "When agent-init was started.", stamp(s.Started))
	return b.Flush()
}

// writeMetrics writes the head of the log. A label with the hash would make a series of each value, and a number has no
// more than 52 bits: so two have its first 24 digits, twelve each.
func (a Audit) writeMetrics(metric func(name, kind, help string, values ...any)) {
	half := func(i int) uint64 {
		n, _ := strconv.ParseUint(a.Head.Hash[i:i+audit.MinHash/2], 16, 64) // the keeper's own: hexadecimal digits
		return n
	}
	if len(a.Head.Hash) < audit.MinHash {
		return
	}
	metric("audit_head", "gauge", "The number of the log's last line.", "", a.Head.Seq)
	metric("audit_head_hash", "gauge", "The first 24 hexadecimal digits of its SHA-256, in two numbers of 12.",
		`{digits="1-12"}`, half(0), `{digits="13-24"}`, half(audit.MinHash/2))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func inSeconds(nanos uint64) string { return fmt.Sprintf("%.6f", time.Duration(nanos).Seconds()) }

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
