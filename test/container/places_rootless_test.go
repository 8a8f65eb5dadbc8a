package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestContainerPlacesRootless runs the base image under engines of a user without a privilege: the
// container's root is that user, and its network namespace the user's.
func TestContainerPlacesRootless(t *testing.T) {
	e := needEngine(t)
	xtables := os.Getenv("AGENT_INIT_XTABLES_IMAGE")
	if xtables == "" {
		lacking(t, "the tests of rootless engines need AGENT_INIT_XTABLES_IMAGE")
	}
	images := archive(t, e, e.base, xtables, claudeImage(t, e))
	for name, start := range map[string]func(*testing.T, *place, *user, string, string) *tenant{
		"podman": newPodman, "docker": newRootlessDocker,
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t) // who can only go when all that the place runs has ended
			p := newPlace(t)
			n := p.internet(t)
			c := start(t, p, &u, images, e.base)
			c.mustBeRootless(t)
			t.Run("probes-can-fail", func(t *testing.T) { c.unconfined(t, n) })
			t.Run("default-network", func(t *testing.T) {
				c.confined(t, n, nil, denied4(c.gateway))
				if status := c.must(t, args([]string{"run", "--name", c.name(t)}, c.options(t, n, ""), []string{c.image, "agent-init", "status", "--json"})...); !strings.Contains(status, `"backend": "nftables"`) {
					t.Errorf("the kernel did not take the rules of nftables: %s", status)
				}
			})
			t.Run("claude", func(t *testing.T) { c.saysHello(t, e, n) })
			t.Run("user-network", func(t *testing.T) {
				c.must(t, "network", "create", "--subnet", "10.91.0.0/24", "own")
				t.Cleanup(func() { c.do("network", "rm", "own") })
				c.confined(t, n, []string{"--network=own"}, denied4("10.91.0.1"))
			})
			t.Run("xtables", func(t *testing.T) {
				other := *c
				other.image = strings.Replace(c.image, e.base, xtables, 1)
				other.confined(t, n, []string{"--cap-add=NET_RAW", "-e", "AGENT_INIT_BACKEND=xtables"}, denied4(c.gateway))
			})
			t.Run("lifecycle", func(t *testing.T) { c.lifecycle(t, n) })
			t.Run("attacks", func(t *testing.T) { c.attacks(t, n) })
			t.Run("refusals", func(t *testing.T) { c.refusals(t, n) })
			t.Run("launch", func(t *testing.T) { c.launches(t, e, &u) })
			t.Run("workspace", func(t *testing.T) { c.workspaces(t, n, name == "podman") })
		})
	}
}

// mustBeRootless checks that the test is what it says.
func (c *tenant) mustBeRootless(t *testing.T) {
	t.Helper()
	out := c.must(t, "run", "--name", c.name(t), "--no-healthcheck", "--entrypoint=cat", c.image, "/proc/self/uid_map")
	if f := strings.Fields(out); len(f) < 3 || f[0] != "0" || f[1] != strconv.Itoa(c.owner) || f[2] != "1" {
		t.Fatalf("the container's root is not uid %d alone: %q", c.owner, out)
	}
}

// workspaces: the user's files are the container root's. The agent can write there if the engine can map
// the user to the agent, or if the files are given to the uid that the agent has outside.
func (c *tenant) workspaces(t *testing.T, n *internet, keepID bool) {
	dir := filepath.Join(c.dir, "workspace")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	owned := func(uid int) {
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	write := func(options ...string) result {
		return c.do(args([]string{"run", "--name", c.name(t)}, c.options(t, n, ""), options,
			[]string{"-v", dir + ":/workspace", c.image, "bash", "-c", "touch /workspace/made && id -u"})...)
	}
	owned(c.owner)
	if r := write(); r.code == 0 || !strings.Contains(r.stderr, "Permission denied") {
		t.Errorf("the user's own workspace, unmapped: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if keepID {
		// The policy is mounted from files of the user's too, who is not root in there.
		r := write("--userns=keep-id:uid=1000,gid=1000", "--user=0:0")
		if r.code != 78 || !strings.Contains(r.stderr, "uid 1000") {
			t.Errorf("a policy of the mapped user: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		t.Logf("keep-id with the user's policy: %s", r.stderr)
		r = c.do(args([]string{"run", "--name", c.name(t)}, privileges(), []string{"--no-healthcheck", "--userns=keep-id:uid=1000,gid=1000", "--user=0:0",
			"-v", dir + ":/workspace", c.image, "bash", "-c", "touch /workspace/kept && stat -c %u /workspace/kept"})...)
		if r.code != 0 || r.stdout != "1000\n" {
			t.Errorf("with keep-id: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		if st, err := os.Stat(filepath.Join(dir, "kept")); err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != c.owner {
			t.Errorf("what the agent made is not the user's: %v %v", st, err)
		}
	}
	owned(c.subordinate(t) + 999)
	if r := write(); r.code != 0 || r.stdout != "1000\n" {
		t.Errorf("a workspace of the agent's uid: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// subordinate is the first of the user's range: uid 1 of a container.
func (c *tenant) subordinate(t *testing.T) int {
	t.Helper()
	f := strings.Fields(c.must(t, "run", "--name", c.name(t), "--no-healthcheck", "--entrypoint=cat", c.image, "/proc/self/uid_map"))
	first, err := strconv.Atoi(f[4])
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// newRootlessDocker starts dockerd for u, by Docker's own script.
func newRootlessDocker(t *testing.T, p *place, u *user, archive, image string) *tenant {
	t.Helper()
	c := &tenant{place: p, dir: u.home, owner: u.uid, image: image, gateway: "172.17.0.1"}
	p.must(t, "install", "-d", "-m", "700", "-o", strconv.Itoa(u.uid), u.runtime())
	socket := "unix://" + u.runtime() + "/docker.sock"
	c.prefix = []string{"docker", "-H", socket}
	log, err := os.Create(filepath.Join(t.TempDir(), "dockerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	dockerd := args([]string{"--target", strconv.Itoa(p.pid), "--net", "--mount", "--pid", "--"}, u.as("DOCKERD_ROOTLESS_ROOTLESSKIT_NET=slirp4netns"),
		[]string{"dockerd-rootless.sh", "--data-root", filepath.Join(u.home, "docker"), "--dns=9.9.9.9"})
	cmd := exec.Command("nsenter", dockerd...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("dockerd said:\n%s", said[max(0, len(said)-4000):])
		}
	})
	eventually(t, "the engine answers", within, func() bool {
		select {
		case err := <-ended:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd-rootless.sh ended: %v\n%s", err, said)
		default:
		}
		return c.do("version").code == 0
	})
	if info := c.must(t, "info", "--format", "{{.SecurityOptions}}"); !strings.Contains(info, "rootless") {
		t.Fatal(fmt.Errorf("not rootless: %s", info))
	}
	c.must(t, "load", "-q", "-i", archive)
	return c
}
