package broker

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
	"github.com/agent-init/agent-init/test/attack/rig"
)

// walled confines a box with a route, of which nobody has asked anything. The host is leased to the broker by itself.
func walled(t *testing.T) *rig.Brokered {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := &rig.Brokered{Model: &fakellm.Model{Key: rig.BrokerKey}}
	l.DNS.SetAddrs("api.anthropic.com", routeAddrs...)
	l.Web.Handle("api.anthropic.com", b.Model)
	b.World = rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker: {anthropic: {credential: file:/run/secrets/anthropic}}\n")},
		{Path: "/run/secrets/anthropic", Data: []byte(rig.BrokerKey + "\n"), Mode: 0o400},
		{Path: rig.Bundle, Data: l.CA.PEM},
	}})
	if !rig.Eventually(20*time.Second, func() bool {
		data, err := b.Box.ReadFile("/run/agent-init/leases.json")
		return err == nil && strings.Contains(string(data), "api.anthropic.com")
	}) {
		t.Fatal("the route's host is not resolved ahead")
	}
	return b
}

type listener struct{ network, addr string }

// listeners are the sockets in the namespace of a process that wait for somebody, as proc_pid_net(5) tells of them.
func listeners(t *testing.T, in rig.Inmate) (out []listener) {
	t.Helper()
	for file, loopback := range map[string]string{"tcp": "127.0.0.1", "tcp6": "::1", "udp": "127.0.0.1", "udp6": "::1"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", in.Host, file))
		rig.Must(t, err)
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" && f[3] != "07" { // TCP_LISTEN; TCP_CLOSE, of datagrams
				continue
			}
			_, port, _ := strings.Cut(f[1], ":")
			n, err := strconv.ParseUint(port, 16, 16)
			rig.Must(t, err)
			out = append(out, listener{strings.TrimSuffix(file, "6"), rig.Target(loopback, uint16(n))})
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
	return rig.NotGuards(p)
}

var _ = rig.Also(TestBrokerTakenOver, rig.Everywhere)

// TestBrokerTakenOver: hostile code in the broker's place reaches the hosts of its routes, and nothing else. The agent,
// root and whoever has one of its ids reach nothing of those.
func TestBrokerTakenOver(t *testing.T) {
	b := walled(t)
	b.Works("resolve", "ok.test") // leased to the agent. A connection would still be ending when packets are looked at
	who := b.Process()
	if who.Uid == 0 || who.Uid == lab.AgentUID || who.Gid == who.Uid {
		t.Fatalf("the broker is %+v", who)
	}
	ok4, ok6 := rig.Named("ok.test")
	evil4, evil6 := rig.Named("evil.test")
	for _, a := range routeAddrs {
		if p := b.Turned(who, "-patient", "tcp", rig.Target(a, 443)); !p.OK {
			t.Errorf("proves nothing: the broker does not reach %s: %s", a, p)
		}
	}
	b.Box.ForgetPackets()
	b.Lab.DNS.Forget()
	var tries [][]string
	for _, a := range []string{ok4.String(), ok6.String(), evil4.String(), evil6.String(), "1.1.1.1", "169.254.169.254", "fd00:ec2::254", "45.30.9.9", lab.Upstream4.String()} {
		for _, port := range []uint16{53, 80, 443, 853, 8443} {
			tries = append(tries, []string{"tcp", "-send", "leak", rig.Target(a, port)}, []string{"udp", "-send", "leak", "-timeout", "300ms", rig.Target(a, port)})
		}
		tries = append(tries, []string{"ping", a})
	}
	for _, a := range routeAddrs {
		for _, port := range []uint16{53, 80, 8443} {
			tries = append(tries, []string{"tcp", "-send", "leak", rig.Target(a, port)})
		}
		tries = append(tries, []string{"udp", "-send", "leak", "-timeout", "300ms", rig.Target(a, 443)}, []string{"ping", a})
	}
	for _, server := range []string{"127.0.0.1:53", "127.0.0.11:53", "[::1]:53", lab.Upstream4.String() + ":53", "8.8.8.8:53", rig.Target(routeAddrs[0], 53)} {
		tries = append(tries, []string{"dns", server, "leak.evil.test", "A"}, []string{"dns", "-tcp", server, "leak.evil.test", "A"})
	}
	tries = append(tries, []string{"resolve", "leak.evil.test"}, []string{"resolve", "ok.test"},
		[]string{"udp", "-send", "leak", "-noreply", "224.0.0.251:5353"}, []string{"udp", "-send", "leak", "-noreply", "[ff02::fb]:5353"},
		[]string{"tcp", "-send", "leak", rig.Target(b.Box.Gateway4().String(), 443)}, []string{"tcp", "-send", "leak", rig.Target(b.Box.Neighbor4().String(), 443)})
	here := listeners(t, who)
	if len(here) < 5 { // DNS twice, the gate, the broker's own, a family at least
		t.Errorf("proves nothing: in the box, only %v are listened at", here)
	}
	for _, l := range here {
		tries = append(tries, []string{l.network, "-send", "leak", "-timeout", "300ms", l.addr})
	}
	for _, args := range tries {
		if p := b.Turned(who, args...); p.OK {
			t.Errorf("in the broker's place: %v: %s", args, p)
		}
	}
	b.Sealed(elsewhere)
	b.Unasked("evil.test")

	// And the other way round.
	b.Box.ForgetPackets()
	agents := []rig.Inmate{{Uid: 0}, {Uid: lab.AgentUID, Gid: lab.AgentUID}, {Uid: who.Uid, Gid: lab.AgentUID}, {Uid: lab.AgentUID, Gid: who.Gid}}
	for _, a := range routeAddrs {
		b.Blocked("tcp", "-send", "leak", rig.Target(a, 443))
		b.Blocked("http", "-ca", rig.Bundle, "-addr", rig.Target(a, 443), "https://api.anthropic.com/v1/models")
		b.Blocked("http", "-ca", rig.Bundle, "-addr", rig.Target(a, 443), "https://ok.test/")
		for _, other := range agents {
			if p := b.Turned(other, "tcp", "-send", "leak", rig.Target(a, 443)); p.OK {
				t.Errorf("uid %d, gid %d reaches the route's host: %s", other.Uid, other.Gid, p)
			}
		}
	}
	for _, a := range routeAddrs {
		b.Sealed(rig.Toward(a))
	}
}

var _ = rig.Also(TestBrokerRouteEnds, rig.Everywhere)

// TestBrokerRouteEnds: a route that is taken out ends what is under way on it, and opens nothing.
func TestBrokerRouteEnds(t *testing.T) {
	b := walled(t)
	who := b.Process()
	held := b.Box.ExecStart(lab.Cmd{Args: []string{"/usr/local/bin/poke", "idle", "-n", "1", "-hold", "5s", rig.Target(routeAddrs[0], 443)}, UID: who.Uid, GID: who.Gid})
	defer held.Wait(0)
	rig.Must(t, b.Box.WriteFile("/etc/agent-init/policy.yaml", []byte("domains: [ok.test]\n"), 0o644))
	if r := b.Root("agent-init", "reload"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	b.Box.ForgetPackets()
	for _, a := range routeAddrs {
		if p := b.Turned(who, "tcp", rig.Target(a, 443)); p.OK || p.Errno == "" {
			t.Errorf("after the route: %s: %s", a, p)
		}
		b.Blocked("tcp", "-send", "leak", rig.Target(a, 443))
	}
	time.Sleep(time.Second) // for what is held to try
	for _, a := range routeAddrs {
		b.Sealed(rig.Toward(a))
	}
	if data, err := b.Box.ReadFile("/run/agent-init/leases.json"); err != nil || strings.Contains(string(data), "anthropic") {
		t.Errorf("the leases are %s, %v", data, err)
	}
}

var _ = rig.Also(TestBrokerGoesOn, rig.OverXtables)

// TestBrokerGoesOn: what the agent is asked to wait for ends with nothing that happens to others: guards that are
// killed, grants, another list. Requests that begin meanwhile find the addresses that are leased.
func TestBrokerGoesOn(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	b.Model.Delay = 2 * time.Second
	streamed := make(chan lab.Poke)
	go func() {
		args := append([]string{"http", "-timeout", "60s", "-method", "POST", "-body", strings.Replace(rig.Prompt, "{", `{"stream":true,`, 1),
			"-header", "content-type: application/json", "-header", "anthropic-version: 2023-06-01"}, b.Ask()...)
		streamed <- b.Poke(append(args, b.Base+"/v1/messages")...)
	}()
	if !rig.Eventually(30*time.Second, func() bool { return len(b.Lab.Web.Requests("api.anthropic.com")) > 0 }) {
		t.Fatal("the model was not asked")
	}
	before := b.Process()
	for i := range 3 {
		b.Guard().Signal(t, unix.SIGKILL)
		if p := b.Prompt(b.Ask()...); !p.OK {
			t.Errorf("guard %d was killed: %s", i, p)
		}
		if r := b.SetPolicy(fmt.Sprintf("ok.test\n45.30.9.%d:8443\n", i)); r.Code != 0 {
			t.Errorf("reload: %s", r)
		}
		if r := b.Root("agent-init", "allow", fmt.Sprintf("45.30.8.%d:8443", i), "--for", "1m"); r.Code != 0 {
			t.Errorf("allow: %s", r)
		}
	}
	if p := <-streamed; !p.OK || !strings.Contains(fmt.Sprint(p.Detail["body"]), "message_stop") {
		t.Errorf("the stream was cut: %s", p)
	}
	if now := b.Process(); now.Host != before.Host {
		t.Error("it is another broker")
	}
	if s, code := b.Status(); code != 0 {
		t.Errorf("status: %v", s)
	}
}
