package spine

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestWorksUpstreamTLS, rig.Everywhere)

// TestWorksUpstreamTLS: the guard, which may open no file any more, asks a server over TLS. A server with another
// name's certificate is believed nothing. Where the policy names a server over TLS only later, a guard that has read no
// authorities makes room for one that has.
func TestWorksUpstreamTLS(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.ServeTLS("dns.lab.test")
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	over := func(name string) []byte { return []byte(`dns: {upstream: ["tls://9.9.9.9#` + name + `"]}` + "\n") }
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: over("dns.lab.test")}}})
	w.Works("resolve", "first.cdn.test")
	w.Works("http", "https://ok.test/")
	mustAskOver(w, 853)
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/policy.yaml", over("other.lab.test"), 0o644))
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.Blocked("resolve", "strange.cdn.test")
	for _, q := range l.Queries("strange.cdn.test") {
		t.Errorf("%s was asked of a server with another's certificate", q.Name)
	}

	plain := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{})
	rig.Must(t, plain.Box.WriteFile("/etc/agent-init/policy.yaml", over("dns.lab.test"), 0o644))
	if r := plain.Root("agent-init", "reload"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	l.DNS.Forget()
	if !rig.Eventually(lab.Patience, func() bool { return plain.Poke("resolve", "later.cdn.test").OK }) {
		t.Fatal("names do not resolve over TLS after a reload")
	}
	mustAskOver(plain, 853)
}

// mustAskOver checks that the servers of the lab were asked, and none by packets to port 53.
func mustAskOver(w *rig.World, port uint16) {
	w.Helper()
	queries := w.Lab.Queries()
	if len(queries) == 0 {
		w.Fatal("no server was asked")
	}
	if slices.ContainsFunc(queries, func(q lab.Query) bool { return q.Network != "tcp" || q.Server != netip.MustParseAddr("9.9.9.9") }) {
		w.Errorf("servers were asked otherwise than over TLS at port %d: %v", port, queries)
	}
	w.Sealed(lab.Not(lab.ToPort(unix.IPPROTO_TCP, port)), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 443)), lab.Not(lab.ToPort(unix.IPPROTO_TCP, 80)))
}

// TestLocalUpstream: a server of root's in the container, which the policy calls local, is asked and believed.
// A sidecar refuses such a server, so this is about run alone.
func TestLocalUpstream(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml",
		Data: []byte(`dns: {upstream: ["127.0.0.1:5353 local"]}` + "\n")}}})
	server := w.Box.ExecStart(lab.Cmd{Args: []string{"poke", "usurp", "-for", "5m", "127.0.0.1:5353", "45.30.0.20"}})
	w.HasSaid(server, "seated udp", "seated tcp")
	w.Lab.DNS.Forget()
	if !rig.Eventually(lab.Patience, func() bool { return w.Poke("resolve", "n.cdn.test").OK }) {
		t.Error("a local server's answers are not believed")
	}
	for _, q := range w.Lab.Queries() {
		t.Errorf("%s was asked of %s", q.Name, q.Server)
	}
	rig.Must(t, server.Signal(unix.SIGKILL))
	server.Wait(time.Minute)
}
