package container

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// TestContainerPlacesCompose runs the files of deploy/compose as they are, with Docker Compose: only the images that their
// variables name are the tests' own.
func TestContainerPlacesCompose(t *testing.T) {
	e := needEngine(t)
	variables := map[string]string{}
	for _, v := range []string{"COMPOSE_CONFIG", "CRUSH_IMAGE", "TINYPROXY_IMAGE", "IDLE_IMAGE", "CLAUDE_IMAGE"} {
		if variables[v] = os.Getenv("AGENT_INIT_" + v); variables[v] == "" {
			lacking(t, "the tests of Compose need AGENT_INIT_"+v+": test/places.sh compose")
		}
	}
	t.Setenv("DOCKER_CONFIG", variables["COMPOSE_CONFIG"])
	e.claude = variables["CLAUDE_IMAGE"]
	n := &internet{everyName: true, web: withSearch(fakellm.New())}
	n.start(t, e)
	crush := []string{"AGENT_IMAGE=" + variables["CRUSH_IMAGE"], "LOCALAI_IMAGE=" + variables["IDLE_IMAGE"], "SEARCHMCP_IMAGE=" + variables["IDLE_IMAGE"],
		"OTHER_IMAGE=" + variables["IDLE_IMAGE"]}
	claude := []string{"AGENT_IMAGE=" + e.claude, "GUARD_IMAGE=" + e.base, "PROXY_IMAGE=" + variables["TINYPROXY_IMAGE"], "ANTHROPIC_API_KEY=sk-ant-test"}
	t.Run("local", func(t *testing.T) { testComposeLocal(t, e, n, crush) })
	t.Run("host-model", func(t *testing.T) { testComposeHostModel(t, e, n, crush) })
	key := filepath.Join(t.TempDir(), "anthropic")
	if err := os.WriteFile(key, []byte("sk-ant-test\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	t.Run("hosted", func(t *testing.T) { testComposeHosted(t, e, n, append(claude, "ANTHROPIC_KEY_FILE="+key)) })
	t.Run("hosted-proxy", func(t *testing.T) { testComposeProxy(t, e, n, claude) })
	t.Run("sidecar", func(t *testing.T) { testComposeSidecar(t, e, n, claude) })
	t.Run("gateway", func(t *testing.T) { testComposeGateway(t, e, n, claude) })
	t.Run("harness", func(t *testing.T) { testComposeHarness(t, e, n, variables["IDLE_IMAGE"]) })
	t.Run("sandbox", func(t *testing.T) { testComposeSandbox(t, e, n) })
}

// project is one file of deploy/compose, started under a name of its own.
type project struct {
	t    *testing.T
	e    *engine
	args []string
	env  []string
}

// newProject returns a project of a file, and of a second one of the tests if it is not "". What it makes is
// gone at the end.
func newProject(t *testing.T, e *engine, file, second string, env []string) *project {
	t.Helper()
	p := &project{t: t, e: e, env: append(slices.Clone(env), "WORKSPACE="+t.TempDir()),
		args: []string{"compose", "-p", e.unique(t), "--project-directory", t.TempDir(), "-f", filepath.Join("../../deploy/compose", file)}}
	if second != "" {
		p.args = append(p.args, "-f", filepath.Join("testdata", second))
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs := p.compose("logs", "--tail", "40")
			t.Logf("%s%s", logs.stdout, logs.stderr)
		}
		p.compose("down", "-v", "--remove-orphans", "-t", "1")
	})
	return p
}

// command is one of Compose's, which stands at a terminal if that is where it is started.
func (p *project) command(args ...string) *exec.Cmd {
	cmd := exec.Command("docker", append(slices.Clone(p.args), args...)...)
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

func (p *project) compose(args ...string) result { return finish(p.command(args...), 2*time.Minute) }

func (p *project) must(args ...string) string {
	p.t.Helper()
	r := p.compose(args...)
	if r.code != 0 {
		p.t.Fatalf("docker compose %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

// service returns a started service, in whose network a test can serve.
func (p *project) service(name string) peer {
	p.t.Helper()
	id := p.must("ps", "-q", name)
	return peer{
		netns:   "/proc/" + p.e.must(p.t, "inspect", "--format", "{{.State.Pid}}", id) + "/ns/net",
		address: strings.Fields(p.e.must(p.t, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", id))[0],
	}
}

// network returns the gateway of a network of the project.
func (p *project) gateway(network string) string {
	p.t.Helper()
	return p.e.must(p.t, "network", "inspect", "--format", "{{(index .IPAM.Config 0).Gateway}}", p.args[2]+"_"+network)
}

// probe runs agent.sh as the agent of the project.
func (p *project) probe(n *internet, targets ...[]string) (report, result) {
	p.t.Helper()
	out := p.compose(args([]string{"run", "--rm"}, agent(p.t, n), []string{"agent", "bash", "/test/agent.sh", "--"}, args(targets...))...)
	return parseReport(p.t, out.stdout), out
}

// mustArriveOnlyAt checks the far side.
func mustArriveOnlyAt(t *testing.T, n *internet, allowed ...string) {
	t.Helper()
	arrivals, _ := n.seen()
	for _, a := range allowed {
		if !slices.Contains(arrivals, netip.MustParseAddrPort(a)) {
			t.Errorf("nothing arrived at %s", a)
		}
	}
	for _, a := range arrivals {
		if !slices.Contains(allowed, a.String()) {
			t.Errorf("something arrived at %v", a)
		}
	}
}

func (r report) mustOpen(t *testing.T, targets []string) {
	t.Helper()
	for _, target := range targets {
		if v := r.probes[target].verdict; v != "open" {
			t.Errorf("%s is %q, want open", target, v)
		}
	}
}

// testComposeLocal: the agent reaches its two services, by name and port, and its neighbour not at all.
func testComposeLocal(t *testing.T, e *engine, n *internet, env []string) {
	p := newProject(t, e, "local.yaml", "neighbour.yaml", env)
	p.must("up", "-d", "localai", "searchmcp", "other")
	localai, searchmcp, other := p.service("localai"), p.service("searchmcp"), p.service("other")
	n.serve(t, localai.netns, 8080, 8081)
	n.serve(t, searchmcp.netns, 8000, 8080)
	n.serve(t, other.netns, 8080, 8000)

	n.forget()
	r := p.compose("run", "--rm", "agent", "crush", "run", "say hello")
	if r.code != 0 || !strings.Contains(r.stdout, fakellm.Text) || !strings.Contains(r.stdout, searchTool) {
		t.Errorf("without a terminal: exit %d, want %q and %q\n%s%s", r.code, fakellm.Text, searchTool, r.stdout, r.stderr)
	}
	c := terminalOf(t, p.command("run", "--rm", "agent"))
	c.wait("crush> ")
	c.typed("say hello\r")
	c.wait(fakellm.Text)
	c.wait(searchTool)
	c.typed("quit\r")
	c.wantExit(0)
	p.must("up", "-d", "agent")
	eventually(t, "there is a session in the background", time.Minute, func() bool {
		return p.compose("exec", "-T", "agent", "agent-init", "sessions").code == 0
	})
	c = terminalOf(t, p.command("exec", "agent", "agent-init", "attach"))
	c.wait("crush>") // drawn anew, without the blank at the end
	c.typed("again\r")
	c.wait(fakellm.Text)
	c.typed("\x1dd")
	c.wantExit(0)
	p.must("rm", "-f", "-s", "agent")
	mustArriveOnlyAt(t, n, localai.address+":8080", searchmcp.address+":8000")
	if r := p.compose("run", "--rm", "agent", "sh", "-c", "exit 7"); r.code != 7 {
		t.Errorf("exit %d, want the agent's own 7\n%s%s", r.code, r.stdout, r.stderr)
	}

	open := []string{target("tcp", "localai", 8080), target("tcp", "searchmcp", 8000)}
	denied := args(denied4(p.gateway("inside")), []string{
		target("tcp", "localai", 8081), target("tcp", "searchmcp", 8080), target("tcp", "other", 8080),
		target("tcp", other.address, 8080), target("tcp", other.address, 8000), target("tcp", localai.address, 8000),
	})
	n.forget()
	report, out := p.probe(n, open, denied)
	report.mustOpen(t, open)
	report.mustRefuse(t, denied)
	report.mustBePowerless(t)
	mustArriveOnlyAt(t, n, localai.address+":8080", searchmcp.address+":8000")
	if t.Failed() {
		t.Logf("docker compose run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	eventually(t, "--rm has removed the agents", time.Minute, func() bool { return p.must("ps", "-aq", "agent") == "" })
}

// testComposeHostModel: the address of the model on the host, and that alone.
func testComposeHostModel(t *testing.T, e *engine, n *internet, env []string) {
	n.serve(t, e.netns, 11434)
	p := newProject(t, e, "host-model.yaml", "", env)
	n.forget()
	if r := p.compose("run", "--rm", "agent", "crush", "run", "say hello"); r.code != 0 || !strings.Contains(r.stdout, fakellm.Text) {
		t.Errorf("exit %d, want %q\n%s%s", r.code, fakellm.Text, r.stdout, r.stderr)
	}
	open := []string{target("tcp", "10.200.200.1", 11434)}
	gateway := p.gateway("default")
	denied := args(denied4(gateway), []string{target("tcp", "10.200.200.1", 8080), target("tcp", "10.200.200.2", 11434), target("tcp", gateway, 11434)})
	report, out := p.probe(n, open, denied)
	report.mustOpen(t, open)
	report.mustRefuse(t, denied)
	mustArriveOnlyAt(t, n, "10.200.200.1:11434")
	if t.Failed() {
		t.Logf("docker compose run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// trusting are the arguments of "run" that have an agent trust the authority of the tests' internet.
func trusting(n *internet) []string {
	return []string{"-v", n.authority + ":/test/ca.pem:ro", "-e", "NODE_EXTRA_CA_CERTS=/test/ca.pem", "-e", "SSL_CERT_FILE=/test/ca.pem"}
}

// sayHelloIn runs Claude Code in a project.
func sayHelloIn(t *testing.T, p *project, n *internet) {
	t.Helper()
	r := p.compose(args([]string{"run", "--rm"}, trusting(n), []string{"agent", "claude", "-p", "say hello"})...)
	if r.code != 0 || !strings.Contains(r.stdout, fakellm.Text) {
		t.Errorf("exit %d, want %q\n%s%s", r.code, fakellm.Text, r.stdout, r.stderr)
	}
}

func testComposeHosted(t *testing.T, e *engine, n *internet, env []string) {
	p := newProject(t, e, "hosted.yaml", "", env)
	n.forget()
	sayHelloIn(t, p, n)
	denied := denied4(p.gateway("default"))
	report, out := p.probe(n, denied)
	report.mustRefuse(t, denied)
	report.mustBePowerless(t)
	mustArriveOnlyAt(t, n, "160.79.104.10:443")
	if t.Failed() {
		t.Logf("docker compose run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// testComposeProxy: what the list does not name is refused before the proxy is asked, and the proxy has no other use.
func testComposeProxy(t *testing.T, e *engine, n *internet, env []string) {
	p := newProject(t, e, "hosted-proxy.yaml", "", env)
	n.forget()
	sayHelloIn(t, p, n)
	const ask = `for request in "CONNECT api.anthropic.com:443" "CONNECT example.com:443" "CONNECT api.anthropic.com:22" "CONNECT 93.184.216.34:443" "GET http://example.com/"; do
		host=${request#* }; host=${host#http://}; exec 3<>/dev/tcp/proxy/80 && printf "%s HTTP/1.1\r\nHost: %s\r\n\r\n" "$request" "${host%/}" >&3 && read -r -t 20 _ code _ <&3; echo "$request: ${code:-none}"; exec 3>&-; unset code; done`
	r := p.compose(args([]string{"run", "--rm"}, trusting(n), []string{"agent", "bash", "-c", ask})...)
	for _, want := range []string{"CONNECT api.anthropic.com:443: 200\n", "CONNECT example.com:443: 403\n", "CONNECT api.anthropic.com:22: 403\n",
		"CONNECT 93.184.216.34:443: 403\n", "GET http://example.com/: 403\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the proxy's answers lack %q: exit %d\n%s%s", want, r.code, r.stdout, r.stderr)
		}
	}
	proxy := p.service("proxy")
	denied := args(denied4(p.gateway("inside")), []string{target("tcp", proxy.address, 443), target("tcp", proxy.address, 8888)})
	report, out := p.probe(n, denied)
	report.mustRefuse(t, denied)
	mustArriveOnlyAt(t, n, "160.79.104.10:443")
	_, queries := n.seen()
	if slices.Contains(queries, "example.com.") {
		t.Error("the proxy looked up example.com")
	}
	if t.Failed() {
		t.Logf("docker compose run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// testComposeSidecar: the agent's container holds no capability, and is confined by its neighbour, and still is
// when that is gone.
func testComposeSidecar(t *testing.T, e *engine, n *internet, env []string) {
	p := newProject(t, e, "sidecar.yaml", "trust.yaml", append(env, "AUTHORITY="+n.authority))
	n.forget()
	sayHelloIn(t, p, n)
	denied := denied4(p.gateway("default"))
	report, out := p.probe(n, denied)
	report.mustRefuse(t, denied)
	if got := report.status["CapBnd:"]; got != "0000000000000000" || report.status["Uid:"] != "1000 1000 1000 1000" {
		t.Errorf("the agent has %q as %q", got, report.status["Uid:"])
	}
	mustArriveOnlyAt(t, n, "160.79.104.10:443")

	id := p.must(args([]string{"run", "-d"}, agent(t, n), []string{"agent", "sleep", "infinity"})...)
	p.must("stop", "guard")
	n.forget()
	held := e.docker(args([]string{"exec", id, "bash", "/test/agent.sh", "--"}, denied, []string{target("tcp", "160.79.104.10", 443)})...)
	report = parseReport(t, held.stdout)
	for target, probe := range report.probes {
		if probe.verdict == "open" {
			t.Errorf("without the guard, %s is open", target)
		}
	}
	if len(report.probes) != len(denied)+1 {
		t.Errorf("%d probes without the guard, want %d: %s%s", len(report.probes), len(denied)+1, held.stdout, held.stderr)
	}
	mustArriveOnlyAt(t, n)
	if t.Failed() {
		t.Logf("docker compose run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}
