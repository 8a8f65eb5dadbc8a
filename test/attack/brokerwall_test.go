package attack

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
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

// walled confines a box with a route, of which nobody has asked anything. The host is leased to the broker by itself.
func walled(t *testing.T) *brokered {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := &brokered{model: &fakellm.Model{Key: brokerKey}}
	l.DNS.SetAddrs("api.anthropic.com", routeAddrs...)
	l.Web.Handle("api.anthropic.com", b.model)
	b.world = confineIn(t, l, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker: {anthropic: {credential: file:/run/secrets/anthropic}}\n")},
		{Path: "/run/secrets/anthropic", Data: []byte(brokerKey + "\n"), Mode: 0o400},
		{Path: bundle, Data: l.CA.PEM},
	}})
	if !eventually(20*time.Second, func() bool {
		data, err := b.box.ReadFile("/run/agent-init/leases.json")
		return err == nil && strings.Contains(string(data), "api.anthropic.com")
	}) {
		t.Fatal("the route's host is not resolved ahead")
	}
	return b
}

type listener struct{ network, addr string }

// listeners are the sockets in the namespace of a process that wait for somebody, as proc_pid_net(5) tells of them.
func listeners(t *testing.T, in inmate) (out []listener) {
	t.Helper()
	for file, loopback := range map[string]string{"tcp": "127.0.0.1", "tcp6": "::1", "udp": "127.0.0.1", "udp6": "::1"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", in.host, file))
		must(t, err)
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" && f[3] != "07" { // TCP_LISTEN; TCP_CLOSE, of datagrams
				continue
			}
			_, port, _ := strings.Cut(f[1], ":")
			n, err := strconv.ParseUint(port, 16, 16)
			must(t, err)
			out = append(out, listener{strings.TrimSuffix(file, "6"), target(loopback, uint16(n))})
		}
	}
	return out
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

var _ = also(TestBrokerTakenOver, everywhere)

// TestBrokerTakenOver: hostile code in the broker's place reaches the hosts of its routes, and nothing else. The agent,
// root and whoever has one of its ids reach nothing of those.
func TestBrokerTakenOver(t *testing.T) {
	b := walled(t)
	b.works("resolve", "ok.test") // leased to the agent. A connection would still be ending when packets are looked at
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
		[]string{"udp", "-send", "leak", "-noreply", "224.0.0.251:5353"}, []string{"udp", "-send", "leak", "-noreply", "[ff02::fb]:5353"},
		[]string{"tcp", "-send", "leak", target(b.box.Gateway4().String(), 443)}, []string{"tcp", "-send", "leak", target(b.box.Neighbor4().String(), 443)})
	here := listeners(t, who)
	if len(here) < 5 { // DNS twice, the gate, the broker's own, a family at least
		t.Errorf("proves nothing: in the box, only %v are listened at", here)
	}
	for _, l := range here {
		tries = append(tries, []string{l.network, "-send", "leak", "-timeout", "300ms", l.addr})
	}
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

var _ = also(TestBrokerRouteEnds, everywhere)

// TestBrokerRouteEnds: a route that is taken out ends what is under way on it, and opens nothing.
func TestBrokerRouteEnds(t *testing.T) {
	b := walled(t)
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
	time.Sleep(time.Second) // for what is held to try
	for _, a := range routeAddrs {
		b.sealed(toward(a))
	}
	if data, err := b.box.ReadFile("/run/agent-init/leases.json"); err != nil || strings.Contains(string(data), "anthropic") {
		t.Errorf("the leases are %s, %v", data, err)
	}
}

var _ = also(TestBrokerGoesOn, overXtables)

// TestBrokerGoesOn: what the agent is asked to wait for ends with nothing that happens to others: guards that are
// killed, grants, another list. Requests that begin meanwhile find the addresses that are leased.
func TestBrokerGoesOn(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	b.model.Delay = 2 * time.Second
	streamed := make(chan lab.Poke)
	go func() {
		args := append([]string{"http", "-timeout", "60s", "-method", "POST", "-body", strings.Replace(prompt, "{", `{"stream":true,`, 1),
			"-header", "content-type: application/json", "-header", "anthropic-version: 2023-06-01"}, b.ask()...)
		streamed <- b.poke(append(args, b.base+"/v1/messages")...)
	}()
	if !eventually(30*time.Second, func() bool { return len(b.lab.Web.Requests("api.anthropic.com")) > 0 }) {
		t.Fatal("the model was not asked")
	}
	before := b.process()
	for i := range 3 {
		b.guard().signal(t, unix.SIGKILL)
		if p := b.prompt(b.ask()...); !p.OK {
			t.Errorf("guard %d was killed: %s", i, p)
		}
		if r := b.setPolicy(fmt.Sprintf("ok.test\n45.30.9.%d:8443\n", i)); r.Code != 0 {
			t.Errorf("reload: %s", r)
		}
		if r := b.root("agent-init", "allow", fmt.Sprintf("45.30.8.%d:8443", i), "--for", "1m"); r.Code != 0 {
			t.Errorf("allow: %s", r)
		}
	}
	if p := <-streamed; !p.OK || !strings.Contains(fmt.Sprint(p.Detail["body"]), "message_stop") {
		t.Errorf("the stream was cut: %s", p)
	}
	if now := b.process(); now.host != before.host {
		t.Error("it is another broker")
	}
	if s, code := b.status(); code != 0 {
		t.Errorf("status: %v", s)
	}
}
