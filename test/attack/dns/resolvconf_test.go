package dns

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// otherServer is a DNS server that no box of the lab names by itself.
const otherServer = "45.30.53.53"

// asks says which DNS servers the status names, and whether it is healthy.
func asksServers(w *rig.World) (servers string, healthy bool) {
	s, code := w.Status()
	dns, _ := s["dns"].(map[string]any)
	return fmt.Sprint(dns["servers"]), code == 0
}

// TestResolvConfFollowed: what root writes into resolv.conf counts within seconds, however it is written: the guard
// asks those servers, the packet filter lets it, and nobody asks the former ones. What is gone, or could be the
// agent's, names nobody, and the status says so.
func TestResolvConfFollowed(t *testing.T) {
	w := rig.Confine(t, "ok.test\n*.cdn.test\n", lab.BoxOptions{Resolv: "nameserver " + lab.Upstream4.String() + "\n"})
	w.Lab.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	first, other := "["+lab.Upstream4.String()+":53]", "["+otherServer+":53]"
	for i, step := range []struct {
		what, do, servers string
	}{
		{"written in place", "echo nameserver " + otherServer + " > /etc/resolv.conf", other},
		{"written again", "echo nameserver " + lab.Upstream4.String() + " > /etc/resolv.conf", first},
		{"another's to write", "chmod 666 /etc/resolv.conf", "[]"},
		{"root's again", "chmod 644 /etc/resolv.conf; echo nameserver " + otherServer + " > /etc/resolv.conf", other},
		{"emptied", ": > /etc/resolv.conf", "[]"},
		{"filled again", "echo nameserver " + otherServer + " > /etc/resolv.conf", other},
		{"garbage", "head -c 5000 /dev/urandom > /etc/resolv.conf", "[]"},
		{"its own address", "echo nameserver 127.0.0.53 > /etc/resolv.conf", "[]"},
		{"whole again", "echo nameserver " + otherServer + " > /etc/resolv.conf", other},
	} {
		t.Run(step.what, func(t *testing.T) {
			if r := w.Root("sh", "-c", step.do); r.Code != 0 {
				t.Fatal(r)
			}
			last := ""
			if !rig.Eventually(lab.Patience, func() bool {
				servers, healthy := asksServers(w)
				last = fmt.Sprint(servers, " healthy: ", healthy)
				return servers == step.servers && healthy == (servers != "[]")
			}) {
				t.Fatalf("the status says %s, want %s", last, step.servers)
			}
			w.Lab.DNS.Forget()
			name := fmt.Sprintf("n%d.cdn.test", i)
			if w.Poke("resolve", name).OK != (step.servers != "[]") {
				t.Errorf("%s resolves, or doesn't: %s", name, last)
			}
			for _, q := range w.Lab.Queries() {
				if !strings.HasPrefix(step.servers, "["+q.Server.String()) {
					t.Errorf("%s was asked", q.Server)
				}
			}
			if said := w.Root("agent-init", "status").Stdout; step.servers == "[]" && !strings.Contains(said, "there is no DNS server to ask") {
				t.Errorf("the status says %s", said)
			}
		})
	}
	w.Blocked("dns", otherServer+":53", "evil.test", "A")
}

// TestNoServer: without a DNS server, a policy of addresses starts, and one with names is refused at once, with the
// cause.
func TestNoServer(t *testing.T) {
	lab.Require(t)
	for _, resolv := range []string{"# nothing\n", "nameserver 127.0.0.53\n"} {
		w := rig.ConfineIn(t, lab.New(t, lab.Options{}), "45.30.9.9:8443\n", lab.BoxOptions{Resolv: resolv})
		w.Works("tcp", "45.30.9.9:8443")
		if _, healthy := asksServers(w); !healthy {
			t.Errorf("%q: not healthy: %s", resolv, w.Root("agent-init", "status"))
		}
		r := rig.Start(t, "ok.test\n", lab.BoxOptions{Resolv: resolv}, "agent-init", "run", "--", "true").Agent.Wait(lab.Patience)
		if r.Code != 78 || !strings.Contains(r.Stderr, "ok.test") || !strings.Contains(r.Stderr, "dns.upstream") || strings.Contains(r.Stderr, "in time") {
			t.Errorf("%q: %s", resolv, r)
		}
	}
}

// TestServersDead: where no DNS server answers, the status, the metrics, explain and doctor say so, and when one does
// again, they say that, without anybody asking.
func TestServersDead(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	mute, speak := lab.Answer{Silent: true}, lab.Names()["ok.test"]
	w.Lab.DNS.Set("ok.test", mute)
	w.Lab.DNS.Set("ok2.test", mute)
	if r := w.Root("agent-init", "allow", "ok2.test"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Poke("resolve", "ok2.test")
	if !rig.Eventually(lab.Patience, func() bool { _, code := w.Status(); return code != 0 }) {
		t.Fatalf("the status says %s", w.Root("agent-init", "status"))
	}
	const says = "no DNS server answers"
	for _, args := range [][]string{{"status"}, {"explain", "ok.test"}, {"doctor"}} {
		if said := w.Root(append([]string{"agent-init"}, args...)...).Stdout; !strings.Contains(said, says) || !strings.Contains(said, lab.Upstream4.String()) {
			t.Errorf("%v: %s", args, said)
		}
	}
	if said := w.Root("agent-init", "metrics").Stdout; !strings.Contains(said, "agent_init_dns_upstream_answering 0") {
		t.Errorf("metrics: %s", said)
	}
	w.Lab.DNS.Set("ok.test", lab.Answer{Addrs: speak})
	if !rig.Eventually(lab.Patience, func() bool { _, code := w.Status(); return code == 0 }) {
		t.Fatalf("the status says %s", w.Root("agent-init", "status"))
	}
	if said := w.Root("agent-init", "explain", "ok.test").Stdout; strings.Contains(said, says) {
		t.Errorf("explain: %s", said)
	}
}
