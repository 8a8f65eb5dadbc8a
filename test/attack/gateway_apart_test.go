package attack

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// listens are the ports of a protocol at which something listens on an address of the gateway's.
func (s *several) listens(protocol string, on netip.Addr) (out []netip.AddrPort) {
	s.Helper()
	state := map[string]string{"tcp": "0A", "udp": "07"}[protocol] // TCP_LISTEN, TCP_CLOSE of include/net/tcp_states.h
	host := on.AsSlice()
	slices.Reverse(host) // a word, as this machine has it
	for line := range strings.Lines(s.root("cat", "/proc/net/"+protocol).Stdout) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != state {
			continue
		}
		if port, its := strings.CutPrefix(f[1], strings.ToUpper(hex.EncodeToString(host))+":"); its {
			n, err := strconv.ParseUint(port, 16, 16)
			must(s.T, err)
			out = append(out, netip.AddrPortFrom(on, uint16(n)))
		}
	}
	return out
}

// second gives a gateway an interface more, eth2, to a network with one agent, who is nowhere else.
func second(t *testing.T, box, agent *lab.Box) {
	t.Helper()
	up := func(name, at string) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(at)
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrReplace(l, addr), netlink.LinkSetUp(l))
	}
	must(t, agent.Net.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkDel(l)
		}
		return err
	}))
	must(t, box.Net.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth2"
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(agent.Net.FD())})
		if err == nil {
			err = up("eth2", "172.29.0.1/24")
		}
		return err
	}))
	must(t, agent.Net.Do(func() error {
		err := up("eth0", "172.29.0.7/24")
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{Gw: netip.MustParseAddr("172.29.0.1").AsSlice()})
		}
		return err
	}))
}

// TestLabGatewayAgentsApart: what the gateway has for one agent serves no other: not its guard, its name gate, its broker,
// nor the token of that. One of them is a whole network, behind an interface of its own.
func TestLabGatewayAgentsApart(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("api.anthropic.com", "45.30.50.1", "2a0f:30::50")
	l.Web.Handle("api.anthropic.com", &fakellm.Model{})
	files := []lab.File{
		{Path: agentsFile, Data: []byte(listOf(lineOf("alpha", 2), "name: beta, network: 172.29.0.0/24"))}, {Path: bundle, Data: l.CA.PEM},
		ofAgent("alpha", "ok.test\n45.30.9.9:8443\n"), ofAgent("beta", "ok2.test\n45.30.9.9:8444\n"),
	}
	for _, name := range []string{"alpha", "beta"} {
		files = append(files,
			lab.File{Path: "/etc/agent-init/agents/" + name + "/policy.yaml", Data: []byte("broker:\n  anthropic:\n    credential: [file:/run/secrets/" + name + "]\n    limits: {requests_per_minute: 3}\n")},
			lab.File{Path: "/run/secrets/" + name, Data: []byte(brokerKey + "-" + name + "\n"), Mode: 0o400})
	}
	w := &world{T: t, lab: l, box: l.NewBox(lab.BoxOptions{Gateway: true, Forwards: true, Binary: lab.Binary(t), Files: files})}
	s := &several{kept: &kept{world: w}}
	s.agent = s.another()
	s.beta = &kept{world: w, agent: s.another()}
	second(t, w.box, s.beta.agent)
	w.agent = w.box.Start(lab.Cmd{Args: []string{"agent-init", "gateway", "--inside", "eth1", "--inside", "eth2"}})
	w.ready()

	s.works("http", "https://ok.test/")
	s.works("tcp", "45.30.9.9:8443")
	s.beta.works("dns", "172.29.0.1:53", "ok2.test", "A")
	s.beta.works("tcp", "45.30.9.9:8444")
	s.beta.blocked("dns", "172.29.0.1:53", "ok.test", "A")
	s.beta.blocked("tcp", "45.30.9.9:8443")
	s.blocked("tcp", "45.30.9.9:8444")

	// Each address of the network is beta, and one of alpha's is nobody there.
	mine, gate := hardware(t, s.beta.agent, "eth0"), hardware(t, w.box, "eth2")
	fixed := func(src string) craft {
		return craft{from: mine, to: gate, src: netip.MustParseAddr(src), dst: netip.MustParseAddr("45.30.9.9")}
	}
	w.box.ForgetPackets()
	s.beta.send(fixed(s.agent.Addr4().String()).tcp(4700, 8443, 2, "").hex(), fixed(s.agent.Addr4().String()).tcp(4701, 8444, 2, "").hex(),
		fixed("172.29.0.9").tcp(4702, 8443, 2, "").hex(), fixed("172.29.0.9").tcp(4703, 8444, 2, "").hex())
	if !eventually(lab.Patience, func() bool { return len(s.escaped(lab.ToPort(unix.IPPROTO_TCP, 8444))) > 0 }) {
		t.Error("another address of beta's network does not pass")
	}
	if got := s.escaped(lab.ToPort(unix.IPPROTO_TCP, 8443)); len(got) > 0 {
		t.Errorf("what is alpha's was reached from beta's network: %v", got)
	}

	// The parts of each, as the other tries them.
	type side struct {
		name  string
		by    *kept
		gate  string
		base  string
		token string
		mine  string // a name that it may ask for
	}
	sides := []*side{{name: "alpha", by: s.kept, gate: w.box.Inside4().String(), mine: "ok.test"}, {name: "beta", by: s.beta, gate: "172.29.0.1", mine: "ok2.test"}}
	for _, x := range sides {
		for _, line := range strings.Split(w.root("sh", "-c", ". /run/agent-init/agents/"+x.name+"/broker.env; echo $ANTHROPIC_BASE_URL; echo $ANTHROPIC_AUTH_TOKEN").Stdout, "\n") {
			switch {
			case strings.HasPrefix(line, "http"):
				x.base = line
			case line != "":
				x.token = line
			}
		}
		if !strings.HasPrefix(x.base, "http://"+x.gate+":") || len(x.token) < 40 {
			t.Fatalf("%s asks %q by %q", x.name, x.base, x.token)
		}
	}
	ask := func(x *side, base, token string) lab.Poke {
		return x.by.asRoot("http", "-timeout", "20s", "-method", "POST", "-body", prompt, "-header", "content-type: application/json",
			"-header", "anthropic-version: 2023-06-01", "-header", "authorization: Bearer "+token, base+"/v1/messages")
	}
	for i, x := range sides {
		o := sides[1-i]
		l.Web.Forget()
		if p := ask(x, x.base, x.token); !p.OK {
			t.Errorf("%s: %s", x.name, p)
		}
		if got := l.Web.Requests("api.anthropic.com"); len(got) != 1 || got[0].Header.Get("X-Api-Key") != brokerKey+"-"+x.name {
			t.Errorf("the model was asked for %s: %+v", x.name, got)
		}
		for what, p := range map[string]lab.Poke{
			"the other's token": ask(x, x.base, o.token), "the other's broker": ask(x, o.base, x.token), "the other's broker, with its token": ask(x, o.base, o.token),
		} {
			if p.OK {
				t.Errorf("%s: %s: %s", x.name, what, p)
			}
		}
		if n := len(l.Web.Requests("api.anthropic.com")); n != 1 {
			t.Errorf("%s: the model was asked %d times", x.name, n)
		}
		ports := s.listens("tcp", netip.MustParseAddr(o.gate))
		if len(ports) < 3 { // for questions, connections and requests
			t.Fatalf("for %s, %v listen", o.name, ports)
		}
		for _, p := range ports {
			x.by.blocked("tcp", "-timeout", "1s", p.String())
			x.by.blocked("tcp", "-timeout", "1s", netip.AddrPortFrom(netip.MustParseAddr(x.gate), p.Port()).String())
		}
		for _, p := range s.listens("udp", netip.MustParseAddr(o.gate)) {
			x.by.blocked("dns", "-timeout", "1s", p.String(), o.mine, "A")
		}
	}
	s.stayHome(s.owners(t))
	// What one has used up is there for the other.
	alpha, beta := sides[0], sides[1]
	for n := 0; ask(alpha, alpha.base, alpha.token).OK; n++ {
		if n > 6 { // a minute gives three back
			t.Fatal("alpha's limit is none")
		}
	}
	if p := ask(beta, beta.base, beta.token); !p.OK {
		t.Errorf("alpha's requests counted for beta: %s", p)
	}
}

// TestLabGatewayAgentsOwn: names are answered with the gateway's own address, for all agents alike, and the engine's DNS
// server is asked for them. The name inside a connection counts by the policy of who makes it.
func TestLabGatewayAgentsOwn(t *testing.T) {
	s := keepsSeveralIn(t, lab.BoxOptions{Gateway: true, DockerDNS: true}, listOf(lineOf("alpha", 2), lineOf("beta", 3)), "ok.test\n", "ok2.test\n", "--answer", "own")
	s.unroute()
	s.beta.unroute()
	own := s.box.Inside4()
	for _, x := range []struct {
		*kept
		mine, others string
	}{{s.kept, "ok.test", "ok2.test"}, {s.beta, "ok2.test", "ok.test"}} {
		x.works("dns", at(own, 53), x.mine, "A")
		x.works("http", "-addr", at(own, 443), "https://"+x.mine+"/")
		x.blocked("dns", at(own, 53), x.others, "A")
		x.blocked("http", "-addr", at(own, 443), "https://"+x.others+"/")
		x.blocked("http", "-addr", at(own, 80), "http://"+x.others+"/")
		ports := s.listens("tcp", own)
		if len(ports) < 4 { // for questions and connections of each
			t.Fatalf("on the gateway listen %v", ports)
		}
		for _, p := range ports { // some of which are the other's
			x.blocked("http", "-timeout", "1s", "-addr", p.String(), "https://"+x.others+"/")
			x.blocked("dns", "-timeout", "1s", "-tcp", p.String(), x.others, "A")
		}
		for _, p := range s.listens("udp", own) {
			x.blocked("dns", "-timeout", "1s", p.String(), x.others, "A")
		}
	}
	s.other.blocked("dns", "-timeout", "1s", at(own, 53), "ok.test", "A")
	s.other.blocked("tcp", "-timeout", "1s", at(own, 443))
	if _, code := s.status(); code != 0 {
		t.Error("not healthy")
	}
}

// TestLabGatewayAgentsEnded: when a gateway is told to end, or is killed, its agents are sealed: what they had under way
// ends, and what is allowed by address as well. Another gateway keeps them again.
func TestLabGatewayAgentsEnded(t *testing.T) {
	s := keepsSeveral(t, listOf(lineOf("alpha", 2), lineOf("beta", 3)), "45.30.9.9:8443\nok.test\nok.test:8444\n", "45.30.9.9:8444\n")
	fixed := netip.MustParseAddrPort("45.30.9.9:8443")
	ok4, _ := named("ok.test")
	by := func(signal string) func() {
		return func() {
			st, _ := s.status()
			if r := s.root("kill", signal, fmt.Sprint(st["keeper"].(map[string]any)["pid"])); r.Code != 0 {
				t.Fatal(r)
			}
			gone := func() bool {
				return s.root("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q -e ' [_]_cell ' -e 'init [g]ateway '").Code != 0
			}
			if !eventually(lab.Patience, gone) {
				t.Error("an agent's keeper outlives the gateway's")
			}
		}
	}
	for i, end := range []func(){s.box.Kill, by("-TERM"), by("-KILL")} {
		how := []string{"killed with its container", "told to end", "killed alone"}[i]
		s.works("tcp", fixed.String())
		s.works("tcp", "-send", "hello", at(ok4, 8444))
		s.beta.works("tcp", "45.30.9.9:8444")
		before := s.received(fixed)
		under := s.kept.agent.ExecStart(lab.Cmd{Args: []string{"poke", "tcp", "-hold", "10m", "-oneway", fixed.String()}})
		if !eventually(lab.Patience, func() bool { return s.received(fixed) > before }) {
			t.Fatalf("no stream: %s", under.Stdout())
		}
		end()
		s.box.ForgetPackets()
		s.blocked("tcp", "-timeout", "300ms", fixed.String())
		s.blocked("tcp", "-timeout", "300ms", at(ok4, 8444))
		s.blocked("resolve", "-timeout", "300ms", "ok.test")
		s.beta.blocked("tcp", "-timeout", "300ms", "45.30.9.9:8444")
		if got := s.box.Packets(lab.Routed); len(got) > 0 {
			t.Errorf("%s: %d packets leave a gateway that has ended, the first of them %s", how, len(got), got[0])
		}
		must(t, under.Signal(unix.SIGKILL))
		s.box.Kill()
		s.world.agent = s.box.Start(lab.Cmd{Args: []string{"sh", "-c", "agent-init gateway --inside eth1; exec sleep infinity"}})
		s.ready()
	}
	s.works("tcp", fixed.String())
}
