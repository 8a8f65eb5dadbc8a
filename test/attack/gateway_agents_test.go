package attack

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// several are two agents behind one gateway, each with its own policy, and a third container that is no agent.
type several struct {
	*kept // alpha
	beta  *kept
	other *kept
}

// agentAt are the addresses of the nth container behind the gateway, as the lab gives them.
func agentAt(n int) string {
	return fmt.Sprintf("[172.31.0.%d, 'fd00:31:0::%d', '2001:db8:31:0::%d']", n, n, n)
}

const agentsFile = "/etc/agent-init/policy.yaml"

// listOf is a policy.yaml with agents, each on a line.
func listOf(lines ...string) string {
	return "agents:\n  - {" + strings.Join(lines, "}\n  - {") + "}\n"
}

func lineOf(name string, n int) string { return fmt.Sprintf("name: %s, address: %s", name, agentAt(n)) }

func ofAgent(name, list string) lab.File {
	return lab.File{Path: "/etc/agent-init/agents/" + name + "/allowlist.txt", Data: []byte(list)}
}

// keepsSeveral starts a gateway with these agents, and then the containers.
func keepsSeveral(t *testing.T, list string, alpha, beta string) *several {
	t.Helper()
	return keepsSeveralIn(t, lab.BoxOptions{Gateway: true, Forwards: true}, list, alpha, beta)
}

func keepsSeveralIn(t *testing.T, opts lab.BoxOptions, list, alpha, beta string, flags ...string) *several {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	opts.Files = []lab.File{{Path: agentsFile, Data: []byte(list)}, ofAgent("alpha", alpha), ofAgent("beta", beta)}
	w := startIn(t, l, "", opts, append([]string{"agent-init", "gateway", "--inside", "eth1"}, flags...)...)
	w.ready()
	s := &several{kept: &kept{world: w}}
	s.agent = s.another()
	s.beta = &kept{world: w, agent: s.another()}
	s.other = &kept{world: w, agent: s.another()}
	w.box.ForgetPackets()
	l.DNS.Forget()
	l.ForgetConns()
	return s
}

// TestLabGatewayAgents is the promise of a gateway that keeps several agents: each has its own policy, and none has
// anything of another's, not even while that one has it.
func TestLabGatewayAgents(t *testing.T) {
	s := keepsSeveral(t, listOf(lineOf("alpha", 2), lineOf("beta", 3)), "ok.test\nok.test:8444\n45.30.9.9:8443\n", "ok2.test\n")
	ok4, ok6 := named("ok.test")
	s.works("http", "https://ok.test/")
	s.works("tcp", "-send", "hello", "45.30.9.9:8443")
	s.works("tcp", "-send", "hello", at(ok4, 8444))
	s.works("tcp", "-send", "hello", at(ok6, 8444))
	s.blocked("resolve", "ok2.test")
	s.beta.works("http", "https://ok2.test/")
	// While alpha has them:
	s.box.ForgetPackets()
	s.beta.blocked("resolve", "ok.test")
	for _, target := range []string{at(ok4, 443), at(ok6, 443), at(ok4, 8444), at(ok6, 8444), "45.30.9.9:8443"} {
		if p := s.beta.blocked("tcp", target); !refusedAtOnce(p.Errno) {
			t.Errorf("%s: not refused at once: %s", target, p)
		}
	}
	s.other.blocked("resolve", "ok.test")
	s.other.blocked("tcp", "-timeout", "1s", at(ok4, 8444))
	for _, to := range []string{ok4.String(), ok6.String(), "45.30.9.9"} {
		if got := s.escaped(lab.ToAddr(to)); len(got) > 0 {
			t.Errorf("%d packets of others got to what is alpha's, the first of them %s", len(got), got[0])
		}
	}
	// Neither by way of the gateway.
	ears := s.ears(s.agent)
	mine, gate := hardware(t, s.beta.agent, "eth0"), hardware(t, s.box, "eth1")
	by4 := craft{from: mine, to: gate, src: s.beta.agent.Addr4(), dst: s.agent.Addr4()}
	by6 := craft{from: mine, to: gate, src: s.beta.agent.Addr6(), dst: s.agent.Addr6()}
	s.beta.send(by4.udp(4500, 7002, "LEAK").hex(), by6.udp(4500, 7003, "LEAK").hex(), by4.tcp(4500, 7004, 2, "").hex())
	s.beta.works("http", "https://ok2.test/") // behind these
	if got := ears(); len(got) > 0 {
		t.Errorf("an agent was reached by another through the gateway: %v", got)
	}
	// Each is asked about by its name, and has its own files.
	s.refuses(64, []string{"explain", "ok.test"}, "keeps several agents: alpha beta")
	for name, says := range map[string]string{"alpha": "ok.test 443/tcp: allowed", "beta": "ok.test 443/tcp: denied"} {
		if out := s.did("explain", "--agent", name, "ok.test"); !strings.Contains(out, says) {
			t.Errorf("of %s: %s", name, out)
		}
	}
	if out := s.did("explain", "--agent", "beta", "ok.test"); !strings.Contains(out, "agent-init allow --agent beta ok.test") {
		t.Errorf("what would allow it to beta: %s", out)
	}
	s.did("allow", "--agent", "beta", "--for", "10m", "ok.test")
	s.beta.works("http", "https://ok.test/")
	if out := s.did("grants", "--agent", "alpha"); strings.Contains(out, "ok.test") {
		t.Errorf("alpha has a grant of beta's: %s", out)
	}
	for _, name := range []string{"alpha", "beta"} {
		s.did("selftest", "--agent", name)
		if out := s.did("log", "--agent", name, "--json"); !strings.Contains(out, `"agent":"`+name+`"`) || strings.Contains(out, `"agent":"`+other(name)+`"`) {
			t.Errorf("the log of %s: %s", name, out)
		}
	}
	if out := s.did("status"); !strings.Contains(out, "alpha: 172.31.0.2") || !strings.Contains(out, "beta: 172.31.0.3") {
		t.Errorf("status: %s", out)
	}
	if out := s.did("check"); !strings.Contains(out, "agent beta, in /etc/agent-init/agents/beta") {
		t.Errorf("check: %s", out)
	}
	// Who is no agent is told, once.
	stranger := func(e event) bool { return e.Kind == "drop" && e.IP == s.other.agent.Addr4().String() }
	s.audited("somebody who is no agent", stranger)
}

func other(name string) string { return map[string]string{"alpha": "beta", "beta": "alpha"}[name] }

// TestLabGatewayAgentsFrames: root of one agent's container sends frames past its own kernel, also as its neighbour. That
// one has its hardware address pinned.
func TestLabGatewayAgentsFrames(t *testing.T) {
	pinned := net.HardwareAddr{2, 0x42, 0xac, 0x1f, 0, 2}
	s := keepsSeveral(t, listOf(lineOf("alpha", 2)+", mac: '"+pinned.String()+"'", lineOf("beta", 3)), "ok.test\n45.30.9.9:9000/udp\n45.30.9.9:8443\n45.30.9.7:9000/udp\n", framesList)
	must(t, s.agent.Net.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetHardwareAddr(l, pinned)
		}
		return err
	}))
	s.works("http", "https://ok.test/")
	mine, gate := hardware(t, s.beta.agent, "eth0"), hardware(t, s.box, "eth1")
	alpha4, alpha6 := s.agent.Addr4(), s.agent.Addr6()
	as4, as6 := craft{from: mine, to: gate, src: alpha4, dst: fine4}, craft{from: mine, to: gate, src: alpha6, dst: fine6}
	only := as4
	only.dst = netip.MustParseAddr("45.30.9.7")
	s.beta.withstand(map[string][]string{
		"as the neighbour":               {as4.udp(4600, 9000, "LEAK").hex(), as4.tcp(4600, 8443, 2, "").hex(), as6.udp(4600, 9000, "LEAK").hex()},
		"as it, where it alone may go":   {only.udp(4601, 9000, "LEAK").hex()},
		"as it, to the gateway":          {craft{from: mine, to: gate, src: alpha4, dst: s.box.Inside4()}.udp(4602, 53, "LEAK").hex()},
		"as another one of its networks": {craft{from: mine, to: gate, src: s.other.agent.Addr4(), dst: fine4}.udp(4603, 9000, "LEAK").hex()},
	})
	// Whatever a neighbour claims, what is for alpha gets to alpha.
	s.beta.send(arp(2, mine, gate, alpha4, mine, s.box.Inside4()), arp(1, mine, net.HardwareAddr{255, 255, 255, 255, 255, 255}, alpha4, mine, s.box.Inside4()))
	s.works("http", "https://ok.test/")
	s.audited("frames as a neighbour", func(e event) bool { return e.Kind == "drop" && e.IP == alpha4.String() })
}

// TestLabGatewayAgentsReload: what is taken out of the list, or in, or changed, is so from then on; what is wrong with the
// list or with one agent's files is no other's.
func TestLabGatewayAgentsReload(t *testing.T) {
	s := keepsSeveral(t, listOf(lineOf("alpha", 2), lineOf("beta", 3)), "45.30.9.9:8443\n", "45.30.9.9:8444\nok2.test\n")
	fixed, others := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.9:8444")
	s.works("tcp", fixed.String())
	s.beta.works("tcp", others.String())
	under := s.agent.ExecStart(lab.Cmd{Args: []string{"poke", "tcp", "-hold", "10m", "-oneway", fixed.String()}})
	if !eventually(lab.Patience, func() bool { return s.received(fixed) > 0 }) {
		t.Fatalf("no stream: %s", under.Stdout())
	}
	list := func(lines ...string) lab.Result {
		must(t, s.box.WriteFile(agentsFile, []byte(listOf(lines...)), 0o644))
		return s.root("agent-init", "reload")
	}
	if r := list(lineOf("beta", 3)); r.Code != 0 {
		t.Fatal(r)
	}
	s.box.ForgetPackets()
	s.blocked("tcp", "-timeout", "1s", fixed.String())
	s.blocked("resolve", "ok2.test")
	s.beta.works("tcp", others.String()) // behind these
	if got := s.escaped(lab.ToAddr(fixed.Addr().String()), lab.ToPort(unix.IPPROTO_TCP, fixed.Port())); len(got) > 0 {
		t.Errorf("%d packets of an agent that was taken out, the first of them %s", len(got), got[0])
	}
	// Its address is another's now, whose policy counts alone. No path and no table is too short for its name.
	gamma := strings.Repeat("gamma-9-", 7) + "9876543"
	if r := s.root("mkdir", "-p", "/etc/agent-init/agents/"+gamma); r.Code != 0 {
		t.Fatal(r)
	}
	must(t, s.box.WriteFile("/etc/agent-init/agents/"+gamma+"/allowlist.txt", []byte("ok2.test\n"), 0o644))
	if r := list(lineOf("beta", 3), lineOf(gamma, 2)); r.Code != 0 {
		t.Fatal(r)
	}
	s.works("http", "https://ok2.test/")
	s.blocked("tcp", "-timeout", "1s", fixed.String())
	s.did("selftest", "--agent", gamma)
	// A list that is wrong changes nothing.
	if r := list(lineOf("beta", 3), lineOf("delta", 3)); r.Code != 78 || !strings.Contains(r.Stderr, "addresses in common") {
		t.Errorf("two agents have one address: %s", r)
	}
	s.works("http", "https://ok2.test/")
	if r := list(lineOf("beta", 3), lineOf(gamma, 2)); r.Code != 0 {
		t.Fatal(r)
	}
	// One agent's mistake holds back no ceiling of another's.
	must(t, s.box.WriteFile("/etc/agent-init/agents/beta/allowlist.txt", []byte("*\n"), 0o644))
	if r := s.root("mkdir", "-p", "/etc/agent-init/ceiling.d"); r.Code != 0 { // without a file, it is an error of everybody's
		t.Fatal(r)
	}
	must(t, s.box.WriteFile("/etc/agent-init/ceiling.d/all.yaml", []byte("domains: [ok2.test]\ndeny: [evil.test]\n"), 0o644))
	if r := s.root("agent-init", "reload"); r.Code != 78 || !strings.Contains(r.Stderr, "agent beta") {
		t.Errorf("beta's policy is wrong: %s", r)
	}
	s.works("http", "https://ok2.test/")
	s.beta.blocked("tcp", others.String())
	if _, code := s.status(); code == 0 {
		t.Error("all is well, and beta's policy is wrong")
	}
}

// TestLabGatewayAgentsKilled: an agent whose keeper was killed is sealed until there is another one, and no other agent
// notices. The rules that a killed keeper leaves vouch for nobody.
func TestLabGatewayAgentsKilled(t *testing.T) {
	s := keepsSeveral(t, listOf(lineOf("alpha", 2), lineOf("beta", 3)), "45.30.9.9:8443\nok.test\n", "45.30.9.9:8444\n")
	fixed, others := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.9:8444")
	s.works("tcp", fixed.String())
	// It can't start again as long as its policy is wrong.
	must(t, s.box.WriteFile("/etc/agent-init/agents/alpha/policy.yaml", []byte("nonsense: 1\n"), 0o644))
	st, _ := s.status()
	for _, a := range st["agents"].([]any) {
		if a := a.(map[string]any); a["name"] == "alpha" {
			r := s.root("kill", "-KILL", fmt.Sprint(a["keeper"]))
			if r.Code != 0 {
				t.Fatal(r)
			}
		}
	}
	sealed := func() bool {
		st, code := s.status()
		return code != 0 && strings.Contains(fmt.Sprint(st["why"]), "alpha: sealed")
	}
	if !eventually(lab.Patience, sealed) {
		t.Fatal("nobody says that alpha is sealed")
	}
	s.box.ForgetPackets()
	s.blocked("tcp", "-timeout", "300ms", fixed.String())
	s.blocked("resolve", "-timeout", "300ms", "ok.test")
	s.beta.works("tcp", others.String())
	if got := s.escaped(lab.ToPort(unix.IPPROTO_TCP, fixed.Port())); len(got) > 0 {
		t.Errorf("%d packets of an agent whose keeper was killed, the first of them %s", len(got), got[0])
	}
	must(t, s.box.WriteFile("/etc/agent-init/agents/alpha/policy.yaml", nil, 0o644))
	if !eventually(lab.Patience, func() bool { _, code := s.status(); return code == 0 }) {
		t.Fatal("alpha is not kept again")
	}
	s.works("tcp", fixed.String())
	s.works("http", "https://ok.test/")
}
