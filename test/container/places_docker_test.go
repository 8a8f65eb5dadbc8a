package container

import (
	"fmt"
	"io"
	"net"
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

// TestContainerPlacesDocker starts agents as README.md and the pages of docs/agents say, with plain Docker.
func TestContainerPlacesDocker(t *testing.T) {
	e := needEngine(t)
	for image, to := range map[*string]string{&e.claude: "AGENT_INIT_CLAUDE_IMAGE", &e.codex: "AGENT_INIT_CODEX_IMAGE", &e.npm: "AGENT_INIT_NPM_IMAGE"} {
		if *image = os.Getenv(to); *image == "" {
			lacking(t, "the tests of plain Docker need "+to+": test/places.sh docker")
		}
		e.mustHave(t, *image)
	}
	n := &internet{everyName: true, web: withRegistry(t, fakellm.New())}
	n.start(t, e)
	t.Run("readme-run", func(t *testing.T) { testReadmeRun(t, e, n) })
	t.Run("readme-dockerfile", func(t *testing.T) { testReadmeDockerfile(t, e, n) })
	t.Run("owner", func(t *testing.T) { testOwner(t, e) })
	t.Run("inbound", func(t *testing.T) { testPublished(t, e) })
	t.Run("host", func(t *testing.T) { testModelOnHost(t, e, n) })
	t.Run("codex-login", func(t *testing.T) { testCodexLogin(t, e) })
}

// readmeBlock returns the first block of README.md that begins so, without its indentation.
func readmeBlock(t *testing.T, begin string) string {
	t.Helper()
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), begin)
	if !ok {
		t.Fatalf("README.md has nothing that begins with %q", begin)
	}
	end := "```"
	if strings.HasPrefix(begin, "    ") {
		end = "\n\n"
	}
	block, _, _ := strings.Cut(rest, end)
	block = begin + block
	return strings.ReplaceAll(strings.TrimSpace(block), "\n    ", "\n")
}

// testReadmeRun types the run line of README.md into a shell, on a terminal.
func testReadmeRun(t *testing.T, e *engine, n *internet) {
	line := readmeBlock(t, "    docker run -it --rm \\\n")
	if !strings.HasSuffix(line, "agent-claude") {
		t.Fatalf("the run line ends otherwise: %q", line)
	}
	// The image knows the authority of the tests' internet; nothing else is added.
	e.build(t, "agent-claude", "FROM "+e.claude+"\nCOPY ca.pem /etc/ssl/test.pem\nENV NODE_EXTRA_CA_CERTS=/etc/ssl/test.pem SSL_CERT_FILE=/etc/ssl/test.pem\n", map[string]string{"ca.pem": n.authority})
	keys := t.TempDir()
	if err := os.WriteFile(filepath.Join(keys, "anthropic"), []byte("sk-ant-test\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(line, "/etc/agent-keys/", keys+"/"))
	cmd.Dir = t.TempDir()
	if err := os.Chown(cmd.Dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PWD="+cmd.Dir, "TERM=xterm-256color")
	running := func() string { return e.must(t, "ps", "-q", "--filter", "ancestor=agent-claude") }
	t.Cleanup(func() {
		if id := running(); id != "" {
			e.docker("rm", "-f", id)
		}
	})
	c := terminalOf(t, cmd)
	c.wait("workspace:")
	id := running()
	if r := e.docker("exec", id, "agent-init", "status"); r.code != 0 || !strings.Contains(r.stdout, "1 client attached") {
		t.Errorf("status: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	e.must(t, "stop", id)
	<-c.exited
	eventually(t, "--rm has removed it", 30*time.Second, func() bool { return e.must(t, "ps", "-aq", "--filter", "id="+id) == "" })
}

// build builds an image from a Dockerfile, with the tests' internet, and removes it at the end.
func (e *engine) build(t *testing.T, name, dockerfile string, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for to, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.must(t, "build", "-q", "-t", name, dir)
	t.Cleanup(func() { e.docker("image", "rm", "-f", name) })
}

// testOwner checks as whom the agent works, and that what it makes is its own.
func testOwner(t *testing.T, e *engine) {
	readOnly := func(uid, gid int) []string {
		return []string{"--read-only", "--tmpfs", "/tmp", "--tmpfs", fmt.Sprintf("/home/agent:uid=%d,gid=%d", uid, gid)}
	}
	chown := []string{"--cap-add=CHOWN"}
	host := []string{"-e", "HOST_UID=5001", "-e", "HOST_GID=5002"}
	for _, test := range []struct {
		name       string
		owner      [2]int // of the workspace
		options    []string
		uid, gid   int
		made, home string // what became of a file in the workspace, and in the home directory
	}{
		{"agent", [2]int{1000, 1000}, nil, 1000, 1000, "1000:1000", "1000:1000"},
		{"of-root", [2]int{0, 0}, nil, 1000, 1000, "refused", "1000:1000"},
		{"of-another", [2]int{4242, 4343}, chown, 4242, 4343, "4242:4343", "4242:4343"},
		{"of-another-without-CHOWN", [2]int{4242, 4343}, nil, 4242, 4343, "4242:4343", "refused"},
		{"of-another-read-only", [2]int{4242, 4343}, readOnly(4242, 4343), 4242, 4343, "4242:4343", "4242:4343"},
		{"HOST_UID", [2]int{5001, 5001}, args(chown, host[:2]), 5001, 5001, "5001:5001", "5001:5001"},
		{"HOST_UID-HOST_GID", [2]int{5001, 5002}, args(chown, host), 5001, 5002, "5001:5002", "5001:5002"},
		{"HOST_UID-read-only", [2]int{5001, 5002}, args(readOnly(5001, 5002), host), 5001, 5002, "5001:5002", "5001:5002"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chown(dir, test.owner[0], test.owner[1]); err != nil {
				t.Fatal(err)
			}
			const script = `id -u; id -g; for d in /workspace ~; do touch $d/made 2>/dev/null && stat -c %u:%g $d/made || echo refused; done`
			r := e.docker(args([]string{"run", "--name", e.name(t), "-v", dir + ":/workspace"}, privileges(), test.options, []string{e.base, "sh", "-c", script})...)
			if want := fmt.Sprintf("%d\n%d\n%s\n%s\n", test.uid, test.gid, test.made, test.home); r.code != 0 || r.stdout != want {
				t.Errorf("exit %d, want %q\n%s%s", r.code, want, r.stdout, r.stderr)
			}
			if refused := test.home == "refused"; refused != strings.Contains(r.stderr, "--cap-add=CHOWN") {
				t.Errorf("it said of CHOWN: %s", r.stderr)
			}
		})
	}
}

// testPublished has the agent listen on a port that is let in, and on one that isn't, both published.
func testPublished(t *testing.T, e *engine) {
	const serve = `use IO::Socket::INET; for my $p (3000, 3001) { fork and next;
		my $s = IO::Socket::INET->new(Listen => 5, LocalPort => $p, ReuseAddr => 1) or die $!;
		while (my $c = $s->accept) { print $c "served $p\n"; close $c } } sleep`
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("inbound: [3000]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	name := e.name(t)
	e.must(t, args([]string{"run", "-d", "--name", name, "-p", "127.0.0.1:13000:3000", "-p", "127.0.0.1:13001:3001", "-v", path + ":/etc/agent-init/policy.yaml:ro"},
		privileges(), []string{e.base, "perl", "-e", serve})...)
	address := e.must(t, "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
	get := func(target string, limit time.Duration) (said string) {
		_ = inside(e.netns, func() error {
			c, err := net.DialTimeout("tcp", target, limit)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(limit))
			data, _ := io.ReadAll(c)
			said = string(data)
			return nil
		})
		return said
	}
	// The port is the first thing that shows the agent at work.
	eventually(t, "the published port answers", time.Minute, func() bool { return get("127.0.0.1:13000", 10*time.Second) == "served 3000\n" })
	for target, want := range map[string]string{address + ":3000": "served 3000\n", "127.0.0.1:13001": "", address + ":3001": ""} {
		limit := time.Minute
		if want == "" {
			limit = 5 * time.Second // nobody answers
		}
		if got := get(target, limit); got != want {
			t.Errorf("from outside, %s said %q, want %q", target, got, want)
		}
	}
	// It does listen: from inside it is there.
	r := e.docker("exec", name, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/3001 && cat <&3")
	if r.stdout != "served 3001\n" {
		t.Errorf("from inside, port 3001 said %q %s", r.stdout, r.stderr)
	}
}

// testModelOnHost reaches a model on the machine that runs the engine, by name, and nothing else there.
func testModelOnHost(t *testing.T, e *engine, n *internet) {
	n.serve(t, e.netns, 11434)
	n.forget()
	denied := []string{target("tcp", "host.docker.internal", 443), target("tcp", "host.docker.internal", 8080), target("tcp", bridgeGateway, 8080), target("tcp", "example.com", 443)}
	open := target("tcp", "host.docker.internal", 11434)
	out := e.docker(args([]string{"run", "--name", e.name(t), "--add-host", "host.docker.internal:host-gateway"}, privileges(),
		allow(t, "host.docker.internal:11434 required\n"), agent(t, n), []string{e.base, "bash", "/test/agent.sh", "--", open}, denied)...)
	r := parseReport(t, out.stdout)
	r.mustRefuse(t, denied)
	if v := r.probes[open].verdict; v != "open" {
		t.Errorf("the model on the host: %q, want open", v)
	}
	arrivals, queries := n.seen()
	if !slices.Contains(arrivals, netip.MustParseAddrPort(bridgeGateway+":11434")) {
		t.Errorf("nothing arrived at the host's port 11434, only %v", arrivals)
	}
	for _, a := range arrivals {
		if a.Port() != 11434 {
			t.Errorf("something arrived at %v", a)
		}
	}
	if len(queries) > 0 {
		t.Errorf("queries arrived: %q", queries)
	}
	if t.Failed() {
		t.Logf("docker run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}
