package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// podman is one user's Podman in a place: root's, or that of somebody without a privilege.
type podman struct {
	*place
	prefix []string // of every command
	dir    string   // where files for containers are put; they are the user's
	owner  int
	image  string
}

// newPodman loads an archive of images. Its storage is gone with the test.
func newPodman(t *testing.T, p *place, u *user, archive, image string) *podman {
	t.Helper()
	pm := &podman{place: p, image: "localhost/" + image}
	var err error
	var as []string
	if u == nil {
		if pm.dir, err = os.MkdirTemp("/var/tmp", "agent-init-test-podman"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(pm.dir) })
		as = []string{"env"}
	} else {
		pm.dir, pm.owner = u.home, u.uid
		as = u.as()
		p.must(t, "install", "-d", "-m", "700", "-o", strconv.Itoa(u.uid), u.runtime())
	}
	// Engines of machines with few files per process, and none with systemd: neither is the point here.
	conf := pm.file(t, "containers.conf", "[containers]\ndefault_ulimits = []\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n")
	pm.prefix = args(as, []string{"CONTAINERS_CONF=" + conf, "podman", "--runtime", "runc", "--storage-driver", "overlay",
		"--root", filepath.Join(pm.dir, "storage"), "--runroot", pm.runtime(u), "--network-config-dir", filepath.Join(pm.dir, "networks")})
	pm.must(t, "load", "-q", "-i", archive)
	return pm
}

func (pm *podman) runtime(u *user) string {
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

func (pm *podman) podman(argv ...string) result { return pm.run(args(pm.prefix, argv)...) }

func (pm *podman) must(t *testing.T, argv ...string) string {
	t.Helper()
	return pm.place.must(t, args(pm.prefix, argv)...)
}

// file writes a file of the user's and returns its path.
func (pm *podman) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(pm.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, pm.owner, pm.owner); err != nil {
		t.Fatal(err)
	}
	return path
}

// copied is file with what another has.
func (pm *podman) copied(t *testing.T, from string) string {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	return pm.file(t, filepath.Base(from), string(content))
}

// name returns a name for a container, which is removed at the end.
func (pm *podman) name(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("c%d", pm.serial.Add(1))
	t.Cleanup(func() {
		if t.Failed() {
			r := pm.podman("logs", "--tail", "60", name)
			t.Logf("%s said:\n%s%s", name, r.stdout, r.stderr)
		}
		pm.podman("rm", "-f", "-v", "-t", "0", name)
	})
	return name
}

// options are the run line of the documentation, with a policy, agent.sh, and the internet's authority.
func (pm *podman) options(t *testing.T, n *internet, list string) []string {
	t.Helper()
	return args(privileges(), []string{"--security-opt=no-new-privileges", "--no-healthcheck", "-e", "SSL_CERT_FILE=/test/ca.pem",
		"-v", pm.copied(t, "testdata/agent.sh") + ":/test/agent.sh:ro", "-v", pm.copied(t, n.authority) + ":/test/ca.pem:ro",
		"-v", pm.file(t, fmt.Sprintf("allowlist%d.txt", pm.serial.Add(1)), list) + ":/etc/agent-init/allowlist.txt:ro"})
}
