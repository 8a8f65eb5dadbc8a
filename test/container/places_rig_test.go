package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// place is where engines run that have no daemon of test/engine.sh: a network namespace without an
// uplink, with mounts and processes of its own. All that an engine leaves behind ends with it.
type place struct {
	pid    int
	netns  string
	serial atomic.Int64
}

// settle makes /run the place's own, and the device that slirp4netns needs open for everybody, as udev
// has it. DNS is asked of two addresses, since Podman's own server has port 53 of others. The shell then
// reaps what the engines leave to it.
const settle = `set -e
mount --make-rprivate /
mount --make-rshared /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 run /run
mkdir /run/lock
mkdir -p /dev/net
mount -t tmpfs -o mode=755 net /dev/net
mknod -m 666 /dev/net/tun c 10 200
ip link set lo up
ip address add 9.9.9.9/32 dev lo
ip address add 169.254.20.10/32 dev lo
echo nameserver 9.9.9.9 >/run/resolv.conf
mount --bind /run/resolv.conf "$(readlink -f /etc/resolv.conf)"
echo settled
set +e
while :; do sleep 1000 & wait; done`

func newPlace(t *testing.T) *place {
	t.Helper()
	cmd := exec.Command("sh", "-c", settle)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Setsid: true,
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("a place for the engine: %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // and with it all that runs there
		cmd.Wait()
		removeCgroups()
	})
	settled := make([]byte, len("settled\n"))
	if _, err := out.Read(settled); err != nil {
		t.Fatalf("a place for the engine: %v", err)
	}
	return &place{pid: cmd.Process.Pid, netns: fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)}
}

// removeCgroups removes the cgroups that root's Podman leaves, but for those that are in use.
func removeCgroups() {
	for _, pattern := range []string{"/sys/fs/cgroup/*/libpod_parent", "/sys/fs/cgroup/libpod_parent"} {
		parents, _ := filepath.Glob(pattern)
		for _, p := range parents {
			run("find", p, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
		}
	}
}

// run runs a command there.
func (p *place) run(argv ...string) result {
	return run("nsenter", args([]string{"--target", strconv.Itoa(p.pid), "--net", "--mount", "--pid", "--"}, argv)...)
}

// nodeLocal is where a node of Kubernetes may have its DNS: an address of a block that nobody else may reach.
const nodeLocal = "169.254.20.10"

// internet is newInternet for a place.
func (p *place) internet(t *testing.T) *internet {
	t.Helper()
	return newInternetWith(t, &engine{netns: p.netns}, &internet{servers: []string{"9.9.9.9", nodeLocal}})
}

// user is somebody without a privilege, with a home and a range of subordinate uids.
type user struct {
	name, home string
	uid        int
}

// newUser makes a user of this machine, who is gone with the test.
func newUser(t *testing.T) user {
	t.Helper()
	home, err := os.MkdirTemp("/var/tmp", "agent-init-test-home")
	if err != nil {
		t.Fatal(err)
	}
	u := user{name: fmt.Sprintf("ait%d", os.Getpid()), home: home}
	t.Cleanup(func() {
		// What the engines made belongs to subordinate uids.
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("remove the home: %v", err)
		}
		if r := run("userdel", u.name); r.code != 0 {
			t.Errorf("userdel: exit %d %s", r.code, r.stderr)
		}
	})
	if r := run("useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/sh", u.name); r.code != 0 {
		t.Fatalf("useradd: exit %d %s", r.code, r.stderr)
	}
	u.uid, err = strconv.Atoi(strings.TrimSpace(run("id", "-u", u.name).stdout))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if ranges, _ := os.ReadFile(file); !strings.Contains("\n"+string(ranges), "\n"+u.name+":") {
			t.Fatalf("useradd gave no range in %s", file)
		}
	}
	if err := os.Chown(home, u.uid, u.uid); err != nil {
		t.Fatal(err)
	}
	return u
}

// as is the beginning of a command that u runs, with env.
func (u user) as(env ...string) []string {
	id := strconv.Itoa(u.uid)
	return args([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "env", "-i", "-C", u.home,
		"HOME=" + u.home, "USER=" + u.name, "XDG_RUNTIME_DIR=" + u.runtime(), "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/share/docker.io/contrib"}, env) // where Debian has dockerd-rootless.sh
}

func (u user) runtime() string { return "/run/user/" + strconv.Itoa(u.uid) }

// archive saves images of the engine in a file that everybody can read.
func archive(t *testing.T, e *engine, images ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "agent-init-test-images")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "images.tar")
	e.must(t, args([]string{"save", "-o", path}, images)...)
	for file, mode := range map[string]os.FileMode{dir: 0o755, path: 0o644} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// within is eventually with the time that a start on a busy machine may take.
const within = 60 * time.Second
