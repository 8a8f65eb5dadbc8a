package container

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// refusalLimit tells a refusal from waiting, on however slow a machine: nobody who waits for an answer gives up sooner.
const refusalLimit = 10 * time.Second

// denied4 and denied6 are what no policy of these tests allows: other names, other addresses, another
// port of the allowed address, metadata, and the engine's gateway.
func denied4(gateway string) []string {
	return []string{
		target("tcp", "example.com", 443),
		target("tcp", "evil.example.net", 80),
		target("tcp", "93.184.216.34", 443),
		target("tcp", "185.199.108.153", 80),
		target("tcp", "1.1.1.1", 443),
		target("udp", "1.1.1.1", 443),
		target("tcp", "160.79.104.10", 8080),
		target("tcp", "169.254.169.254", 80),
		target("tcp", gateway, 8080),
	}
}

func denied6() []string {
	return []string{
		target("tcp", "2606:4700:4700::1111", 443),
		target("tcp", "2606:2800:21f::34", 80),
		target("udp", "2606:4700:4700::1111", 443),
	}
}

const bridgeGateway = "172.30.0.1"

// report is what agent.sh printed.
type report struct {
	started bool
	command string            // exit code of the command
	status  map[string]string // of /proc/self/status
	probes  map[string]probe
}

type probe struct {
	verdict string
	took    time.Duration
}

func parseReport(t *testing.T, output string) report {
	t.Helper()
	r := report{status: map[string]string{}, probes: map[string]probe{}}
	for line := range strings.Lines(output) {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "agent started"):
			r.started = true
		case strings.HasPrefix(line, "command ended") && len(f) == 3:
			r.command = f[2]
		case strings.HasPrefix(line, "status ") && len(f) >= 2:
			r.status[f[1]] = strings.Join(f[2:], " ")
		case strings.HasPrefix(line, "probe ") && len(f) == 4:
			us, err := strconv.Atoi(f[3])
			if err != nil {
				t.Fatalf("agent.sh said %q", line)
			}
			r.probes[f[1]] = probe{f[2], time.Duration(us) * time.Microsecond}
		}
	}
	return r
}

// mustRefuse checks that each target was refused, and quickly.
func (r report) mustRefuse(t *testing.T, targets []string) {
	t.Helper()
	for _, target := range targets {
		p, ok := r.probes[target]
		switch {
		case !ok:
			t.Errorf("%s was not probed", target)
		case p.verdict != "refused" && p.verdict != "no-name":
			t.Errorf("%s: %s, want a refusal", target, p.verdict)
		case p.took > refusalLimit:
			t.Errorf("%s was refused after %v, want within %v", target, p.took, refusalLimit)
		}
	}
}

// slowest is the longest time that a refusal of targets took.
func (r report) slowest(targets []string) time.Duration {
	var d time.Duration
	for _, target := range targets {
		d = max(d, r.probes[target].took)
	}
	return d
}

// testProbesCanFail runs Claude Code and the probes without agent-init: all of them get through, and
// are seen on the far side. What the other tests say would be worth nothing else.
func testProbesCanFail(t *testing.T, e *engine, n *internet) {
	n.forget()
	targets := args(denied4(bridgeGateway), denied6())
	out := e.docker(args([]string{"run", "--name", e.name(t), "--cap-drop=ALL", "--user=1000", "--entrypoint=bash"}, agent(t, n),
		[]string{"-e", "ANTHROPIC_API_KEY=sk-ant-test", e.claude, "/test/agent.sh", "claude", "-p", "say hello", "--"}, targets)...)
	r := parseReport(t, out.stdout)
	if !strings.Contains(out.stdout, saying) {
		t.Errorf("unconfined, claude ended %q without %q", r.command, saying)
	}
	arrivals, queries := n.seen()
	for _, target := range targets {
		if v := r.probes[target].verdict; v != "open" {
			t.Errorf("unconfined, %s is %q, want open", target, v)
		}
	}
	for _, a := range []string{"1.1.1.1:443", "[2606:4700:4700::1111]:443", "169.254.169.254:80", "0.0.0.0:443"} {
		if !slices.Contains(arrivals, netip.MustParseAddrPort(a)) {
			t.Errorf("nothing arrived at %s", a)
		}
	}
	if !slices.Contains(queries, "evil.example.net.") {
		t.Errorf("no query for evil.example.net arrived, only %q", queries)
	}
	if t.Failed() {
		t.Logf("docker run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// testAgent runs the real Claude Code with the endpoint as api.anthropic.com, and then probes what
// must be refused from within the same container.
func testAgent(t *testing.T, e *engine, n *internet) {
	readOnly := []string{"--read-only", "--tmpfs", "/tmp", "--tmpfs", "/home/agent:uid=1000,gid=1000"}
	noNewPrivileges := []string{"--security-opt", "no-new-privileges"}
	for _, test := range []struct {
		name    string
		network bool // a user-defined network, with the engine's own DNS at 127.0.0.11
		options []string
	}{
		{name: "bridge"},
		{name: "user-network", network: true},
		{name: "read-only", options: readOnly},
		{name: "no-new-privileges", options: noNewPrivileges},
		{name: "user-network-hardened", network: true, options: args(readOnly, noNewPrivileges)},
	} {
		t.Run(test.name, func(t *testing.T) {
			options, gateway, denied := test.options, bridgeGateway, []string(nil)
			if test.network {
				var network string
				network, gateway = newNetwork(t, e)
				options = args(options, []string{"--network", network})
			} else {
				denied = denied6() // a user-defined network has no IPv6
			}
			denied = args(denied4(gateway), denied)
			r := sayHello(t, e, n, args(options, allow(t, "api.anthropic.com required\n")), denied)
			t.Logf("slowest refusal: %v", r.slowest(denied))
			arrivals, _ := n.seen()
			for _, a := range arrivals {
				if s := a.String(); s != "160.79.104.10:443" && s != "[2607:6bc0::10]:443" {
					t.Errorf("something arrived at %s", s)
				}
			}
		})
	}
	t.Run("neighbour", func(t *testing.T) { testNeighbour(t, e, n) })
}

// testNeighbour has the endpoint on the container network itself, at a private address that only the
// engine's DNS knows, beside another container that the policy doesn't name.
func testNeighbour(t *testing.T, e *engine, n *internet) {
	network, gateway := newNetwork(t, e)
	endpoint := neighbour(t, e, network, "api.anthropic.com")
	other := neighbour(t, e, network, "other.example.net")
	n.serve(t, endpoint.netns, 443, 8080)
	n.serve(t, other.netns, 443)
	denied := args(denied4(gateway), []string{
		target("tcp", endpoint.address, 8080),
		target("tcp", other.address, 443),
		target("tcp", "other.example.net", 443),
	})
	r := sayHello(t, e, n, args([]string{"--network", network}, allow(t, "api.anthropic.com required private\n")), denied)
	t.Logf("slowest refusal: %v", r.slowest(denied))
	arrivals, _ := n.seen()
	for _, a := range arrivals {
		if s := a.String(); s != endpoint.address+":443" {
			t.Errorf("something arrived at %s", s)
		}
	}
}

// byNameToken is a credential that no route of the image takes: Claude Code holds it, and asks the API by its name.
const byNameToken = "ANTHROPIC_AUTH_TOKEN=sk-ant-test"

// sayHello runs Claude Code with a prompt, then the probes that must be refused, and checks it all.
func sayHello(t *testing.T, e *engine, n *internet, options, denied []string) report {
	t.Helper()
	n.forget()
	before := n.llm.prompts.Load()
	out := e.docker(args([]string{"run", "--name", e.name(t)}, privileges(), options, agent(t, n),
		[]string{"-e", byNameToken, e.claude, "bash", "/test/agent.sh", "claude", "-p", "say hello", "--"},
		denied, []string{target("tcp", "api.anthropic.com", 443)})...)
	t.Logf("docker run took %v", out.took)
	r := parseReport(t, out.stdout)
	if !r.started {
		t.Fatalf("the agent did not start: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	if out.code != 0 || r.command != "0" || !strings.Contains(out.stdout, saying) || n.llm.prompts.Load() == before {
		t.Errorf("claude ended %q, container %d, want 0 and %q\n%s%s", r.command, out.code, saying, out.stdout, out.stderr)
	}
	r.mustRefuse(t, denied)
	r.mustBePowerless(t)
	if p := r.probes[target("tcp", "api.anthropic.com", 443)]; p.verdict != "open" {
		t.Errorf("the allowed endpoint: %s, want open", p.verdict)
	}
	_, queries := n.seen()
	for _, name := range []string{"example.com.", "evil.example.net.", "other.example.net."} {
		if slices.Contains(queries, name) {
			t.Errorf("a query for the denied name %s arrived", name)
		}
	}
	return r
}

// mustBePowerless checks what the kernel says of the agent's privileges.
func (r report) mustBePowerless(t *testing.T) {
	t.Helper()
	const none = "0000000000000000"
	for field, want := range map[string]string{
		"Uid:": "1000 1000 1000 1000", "Gid:": "1000 1000 1000 1000",
		"CapInh:": none, "CapPrm:": none, "CapEff:": none, "CapBnd:": none, "CapAmb:": none,
		"NoNewPrivs:": "1", "Seccomp:": "2",
	} {
		if got := r.status[field]; got != want {
			t.Errorf("the agent's %s %q, want %q", field, got, want)
		}
	}
}

// newNetwork makes a user-defined network and returns its name and gateway.
func newNetwork(t *testing.T, e *engine) (name, gateway string) {
	t.Helper()
	name = e.unique(t)
	e.must(t, "network", "create", name)
	t.Cleanup(func() { e.docker("network", "rm", name) })
	return name, e.must(t, "network", "inspect", "--format", "{{(index .IPAM.Config 0).Gateway}}", name)
}

// peer is another container on a network, in whose namespace a test can serve.
type peer struct{ netns, address string }

func neighbour(t *testing.T, e *engine, network, alias string) peer {
	t.Helper()
	name := e.name(t)
	e.must(t, "run", "-d", "--name", name, "--network", network, "--network-alias", alias, "--cap-drop=ALL",
		"--entrypoint=sleep", e.base, "infinity")
	return peer{
		netns:   "/proc/" + e.must(t, "inspect", "--format", "{{.State.Pid}}", name) + "/ns/net",
		address: e.must(t, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name),
	}
}
