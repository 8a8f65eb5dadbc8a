package attack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// several are two agents behind one gateway, each with its own policy, and a third container that is no agent.
type several struct {
	*kept // alpha
	beta  *kept
	other *kept
}

// agentAt are the addresses of the nth container behind the gateway, as the lab gives them.
func agentAt(n int) string { return fmt.Sprintf("[172.31.0.%d, 'fd00:31:0::%d', '2001:db8:31:0::%d']", n, n, n) }

const agentsFile = "/etc/agent-init/policy.yaml"

// listOf is a policy.yaml with agents, each on a line.
func listOf(lines ...string) string { return "agents:\n  - {" + strings.Join(lines, "}\n  - {") + "}\n" }

func lineOf(name string, n int) string { return fmt.Sprintf("name: %s, address: %s", name, agentAt(n)) }

func ofAgent(name, list string) lab.File {
	return lab.File{Path: "/etc/agent-init/agents/" + name + "/allowlist.txt", Data: []byte(list)}
}

// keepsSeveral starts a gateway with these agents, and then the containers.
func keepsSeveral(t *testing.T, list string, alpha, beta string, flags ...string) *several {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := startIn(t, l, "", lab.BoxOptions{Gateway: true, Forwards: true, Files: []lab.File{
		{Path: agentsFile, Data: []byte(list)}, ofAgent("alpha", alpha), ofAgent("beta", beta),
	}}, append([]string{"agent-init", "gateway", "--inside", "eth1"}, flags...)...)
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
	s.beta.blocked("resolve", "ok.test")
	for _, target := range []string{at(ok4, 443), at(ok6, 443), at(ok4, 8444), at(ok6, 8444), "45.30.9.9:8443"} {
		if p := s.beta.blocked("tcp", target); !refusedAtOnce(p.Errno) {
			t.Errorf("%s: not refused at once: %s", target, p)
		}
	}
	s.other.blocked("resolve", "ok.test")
	s.other.blocked("tcp", "-timeout", "1s", at(ok4, 8444))
	for _, p := range s.box.Packets(lab.ToAddr(ok4.String())) {
		if p.Src == s.beta.agent.Addr4() || p.Src == s.other.agent.Addr4() {
			t.Errorf("a packet of another's: %s", p)
		}
	}
}

var _ = netip.Addr{}
