package attack

import (
	"slices"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLabTelemetryAgents: of several agents behind a gateway, each one's log arrives at its own collector, with its own
// name, attributes and headers, and nothing of it at the other's. No exporter reaches the other's collector.
func TestLabTelemetryAgents(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	type side struct {
		name, host, addr, token, bad string // bad is what it asks for in vain
		*kept
		c *receiver
	}
	alpha := &side{name: "alpha", host: collectorHost, addr: collector4, token: "token-of-alpha", bad: "first.evil.test", c: newReceiver()}
	beta := &side{name: "beta", host: "otel2.example.com", addr: "45.30.50.8", token: "token-of-beta", bad: "second.evil.test", c: newReceiver()}
	sides := []*side{alpha, beta}
	files := []lab.File{{Path: agentsFile, Data: []byte(listOf(lineOf("alpha", 2), lineOf("beta", 3)))}, {Path: bundle, Data: l.CA.PEM}}
	for _, x := range sides {
		l.DNS.SetAddrs(x.host, x.addr)
		l.Web.Handle(x.host, x.c)
		secret := "/run/secrets/" + x.name
		files = append(files, ofAgent(x.name, "ok.test\n"), lab.File{Path: secret, Data: []byte("api-key=" + x.token + "\n"), Mode: 0o400}, lab.File{
			Path: "/etc/agent-init/agents/" + x.name + "/policy.yaml",
			Data: []byte("telemetry: {endpoint: 'https://" + x.host + "', headers: 'file:" + secret + "', service: 'of-" + x.name + "', resource: {team: " + x.name + "}, metrics: 1s}\n"),
		})
	}
	w := startIn(t, l, "", lab.BoxOptions{
		Gateway: true, Forwards: true, Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}}, Files: files,
	}, "agent-init", "gateway", "--inside", "eth1")
	w.ready()
	for _, x := range sides { // in the order of their addresses
		x.kept = &kept{world: w}
		x.agent = x.another()
	}
	for _, x := range sides {
		x.blocked("resolve", x.bad)
		x.works("http", "-insecure", "https://ok.test/")
	}
	for _, x := range sides {
		for _, word := range []string{
			"query.hostname=" + x.bad, "resource service.name=of-" + x.name, "resource service.instance.id=" + x.name,
			"resource agent_init.agent.name=" + x.name, "resource agent_init.mode=gateway", "resource team=" + x.name,
		} {
			if !eventually(0, func() bool { return x.c.has(word) }) {
				t.Fatalf("%s: %s does not arrive\n%s", x.name, word, w.agent.Stderr())
			}
		}
		if !eventually(0, func() bool { return x.c.count("agent_init_dns_queries_total") > 0 }) {
			t.Errorf("%s: its metrics do not arrive", x.name)
		}
	}

	// Who is in an exporter's place reaches that one's collector. The other's looks the same from the gateway.
	owners, turned := (&several{kept: alpha.kept}).owners(t), 0
	for _, p := range exporters(w) {
		for _, x := range sides {
			r := w.box.Exec(lab.Cmd{Args: []string{"/usr/local/bin/poke", "-patient", "tcp", "-timeout", "1s", target(x.addr, 443)}, UID: p.uid, GID: p.gid})
			got, err := lab.ParsePoke(r.Stdout)
			if must(t, err); got.OK != (owners[p.uid] == x.name) {
				t.Errorf("in the place of the exporter of %s, to the collector of %s: %s", owners[p.uid], x.name, got)
			}
			turned++
		}
	}
	if turned != 4 {
		t.Errorf("of two exporters, %d connections were tried", turned)
	}
	for i, x := range sides {
		o := sides[1-i]
		for _, y := range sides {
			x.blocked("resolve", y.host)
			x.blocked("tcp", target(y.addr, 443))
		}
		for _, word := range []string{"query.hostname=" + o.bad, "resource service.name=of-" + o.name, "resource agent_init.agent.name=" + o.name, "resource team=" + o.name} {
			if x.c.has(word) {
				t.Errorf("the collector of %s was told %s", x.name, word)
			}
		}
		x.c.mu.Lock()
		if said := slices.Compact(slices.Sorted(slices.Values(x.c.auth))); !slices.Equal(said, []string{x.token}) {
			t.Errorf("the collector of %s was told by %q", x.name, said)
		}
		x.c.mu.Unlock()
	}
}
