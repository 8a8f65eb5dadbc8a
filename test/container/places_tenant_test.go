package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// tenant is one user's engine in a place: Podman or Docker, root's or that of somebody without a privilege.
type tenant struct {
	*place
	prefix  []string // of every command
	dir     string   // where files for containers are put; they are the user's
	owner   int
	image   string
	gateway string // of the default network
}

// newPodman loads an archive of images. Its storage is gone with the test.
func newPodman(t *testing.T, p *place, u *user, archive, image string) *tenant {
	t.Helper()
	c := &tenant{place: p, image: "localhost/" + image, gateway: "10.88.0.1"}
	var err error
	var as []string
	if u == nil {
		if c.dir, err = os.MkdirTemp("/var/tmp", "agent-init-test-podman"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(c.dir) })
		as = []string{"env"}
	} else {
		c.dir, c.owner, c.gateway = u.home, u.uid, slirp
		as = u.as()
		p.must(t, "install", "-d", "-m", "700", "-o", strconv.Itoa(u.uid), u.runtime())
	}
	// Engines of machines with few files per process, and none with systemd: neither is the point here.
	conf := c.file(t, "containers.conf", "[containers]\ndefault_ulimits = []\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n")
	c.prefix = args(as, []string{"CONTAINERS_CONF=" + conf, "podman", "--runtime", "runc", "--storage-driver", "overlay",
		"--root", filepath.Join(c.dir, "storage"), "--runroot", c.runtime(u), "--network-config-dir", filepath.Join(c.dir, "networks")})
	c.must(t, "load", "-q", "-i", archive)
	return c
}

// slirp is the gateway that slirp4netns shows to a container of rootless Podman.
const slirp = "10.0.2.2"

func (c *tenant) runtime(u *user) string {
	if u == nil {
		return "/run/containers/storage"
	}
	return u.runtime() + "/containers"
}

// must is run for a command that is part of the set-up.
func (p *place) must(t *testing.T, argv ...string) string {
	t.Helper()
	r := p.run(argv...)
	if r.code != 0 {
		t.Fatalf("%s: exit %d\n%s%s", strings.Join(argv, " "), r.code, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

func (c *tenant) do(argv ...string) result { return c.run(args(c.prefix, argv)...) }

func (c *tenant) must(t *testing.T, argv ...string) string {
	t.Helper()
	return c.place.must(t, args(c.prefix, argv)...)
}

// file writes a file of the user's and returns its path.
func (c *tenant) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, c.owner, c.owner); err != nil {
		t.Fatal(err)
	}
	return path
}

// copied is file with what another has.
func (c *tenant) copied(t *testing.T, from string) string {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	return c.file(t, filepath.Base(from), string(content))
}

// name returns a name for a container, which is removed at the end.
func (c *tenant) name(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("c%d", c.serial.Add(1))
	t.Cleanup(func() {
		if t.Failed() {
			r := c.do("logs", "--tail", "60", name)
			t.Logf("%s said:\n%s%s", name, r.stdout, r.stderr)
		}
		c.do("kill", name) // else some wait for an end that does not come
		c.do("rm", "-f", "-v", name)
	})
	return name
}

// options are the run line of the documentation, with a policy, agent.sh, and the internet's authority.
func (c *tenant) options(t *testing.T, n *internet, list string) []string {
	t.Helper()
	return args(privileges(), []string{"--security-opt=no-new-privileges", "--no-healthcheck", "-e", "SSL_CERT_FILE=/test/ca.pem",
		"-v", c.copied(t, "testdata/agent.sh") + ":/test/agent.sh:ro", "-v", c.copied(t, n.authority) + ":/test/ca.pem:ro",
		"-v", c.file(t, fmt.Sprintf("allowlist%d.txt", c.serial.Add(1)), list) + ":/etc/agent-init/allowlist.txt:ro"})
}

// claudeImage is the image with Claude Code, which test/places.sh builds.
func claudeImage(t *testing.T, e *engine) string {
	t.Helper()
	image := os.Getenv("AGENT_INIT_CLAUDE_IMAGE")
	if image == "" {
		lacking(t, "the tests of places need AGENT_INIT_CLAUDE_IMAGE")
	}
	e.mustHave(t, image)
	return image
}

// saysHello runs Claude Code with a prompt, and then what must be refused, in one container.
func (c *tenant) saysHello(t *testing.T, e *engine, n *internet) {
	t.Helper()
	n.forget()
	before, denied := n.llm.prompts.Load(), denied4(c.gateway)
	out := c.do(args([]string{"run", "--name", c.name(t)}, c.options(t, n, "api.anthropic.com required\n"),
		[]string{"-e", byNameToken, "-e", "NODE_EXTRA_CA_CERTS=/test/ca.pem",
			strings.Replace(c.image, e.base, claudeImage(t, e), 1), "bash", "/test/agent.sh", "claude", "-p", "say hello", "--"}, denied)...)
	r := parseReport(t, out.stdout)
	if r.command != "0" || !strings.Contains(out.stdout, saying) || n.llm.prompts.Load() == before {
		t.Errorf("claude ended %q, container %d, want 0 and %q\n%s%s", r.command, out.code, saying, out.stdout, out.stderr)
	}
	r.mustRefuse(t, denied)
	// The image's own policy names more than the API.
	arrivals, queries := n.seen()
	for _, a := range arrivals {
		if s := a.String(); !strings.HasPrefix(s, "160.79.104.1") && !strings.HasPrefix(s, "[2607:6bc0::10]") || a.Port() != 443 {
			t.Errorf("something arrived at %s", s)
		}
	}
	for _, q := range queries {
		if strings.Contains(q, "example") {
			t.Errorf("a query for %s arrived", q)
		}
	}
}
