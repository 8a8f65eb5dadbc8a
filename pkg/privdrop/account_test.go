package privdrop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// The test binary executes itself to change an account in a mount namespace.
const roleVariable = "PRIVDROP_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "home" {
		homeRole()
		return
	}
	os.Exit(m.Run())
}

// The owner of a workspace that is mounted becomes the agent, unless it is one that must not.
func TestKernelWorkspaceOwner(t *testing.T) {
	mustrun.Root(t)
	dir, unmounted := open(t), open(t)
	runtime.LockOSThread() // and never unlocked: the mount ends with the thread
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(dir, dir, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(unmounted, 501, 20); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(open(t), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		workspace, hostUID string
		owner, group       int
		uid, gid           uint32
	}{
		{dir, "", 501, 20, 501, 20},
		{dir, "", 1001, 1001, 1001, 1001},
		{dir, "", 501, 0, 501, 501},
		{dir, "", 0, 0, 1000, 1000},
		{dir, "777", 501, 20, 777, 777},
		{link, "", 501, 20, 1000, 1000},
		{dir + "/none", "", 501, 20, 1000, 1000},
		{unmounted, "", 501, 20, 1000, 1000},
	} {
		if err := os.Chown(dir, c.owner, c.group); err != nil {
			t.Fatal(err)
		}
		id, err := LookupOptions{Workspace: c.workspace, HostUID: c.hostUID}.lookup(files(t))
		if err != nil || id.UID != c.uid || id.GID != c.gid {
			t.Errorf("%+v: %+v, %v", c, id, err)
		}
	}
}

func ownerOf(t *testing.T, name string) int {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// The home and its known directories change hands; files, links (E73) and
// what lies beyond them do not.
func TestKernelHome(t *testing.T) {
	mustrun.Root(t)
	root := open(t)
	home, outside := filepath.Join(root, "agent"), open(t)
	for _, d := range []string{"", ".config", ".config/deep", "other", ".local"} {
		if err := os.Mkdir(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{".cache", ".local/share"} {
		if err := os.Symlink(outside, filepath.Join(home, l)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, ".npm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := Identity{UID: 501, GID: 20, Name: "agent", Home: home, Shell: "/bin/sh"}
	passwdFile, _ := files(t)
	for range 2 { // twice: it changes nothing more
		if err := ensureAccount(id, passwdFile, root); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]int{
			home: 501, home + "/.config": 501, home + "/.local": 501,
			home + "/.config/deep": 0, home + "/other": 0, home + "/.npm": 0, home + "/.cache": 0, outside: 0,
		} {
			if got := ownerOf(t, name); got != want {
				t.Errorf("%s belongs to %d, want %d", name, got, want)
			}
		}
	}
	id.Home = filepath.Join(root, "new")
	if err := ensureAccount(id, passwdFile, root); err != nil || ownerOf(t, id.Home) != 501 {
		t.Errorf("a new home: %v", err)
	}
	for _, elsewhere := range []string{outside, root, root + "/../x", "/nonexistent"} {
		id.Home = elsewhere
		if err := ensureAccount(id, passwdFile, root); err != nil {
			t.Errorf("%s: %v", elsewhere, err)
		}
	}
	if ownerOf(t, outside) != 0 || ownerOf(t, root) != 0 {
		t.Error("a home outside of the root was touched")
	}
	id.Home = filepath.Join(root, "link")
	if err := os.Symlink(outside, id.Home); err != nil {
		t.Fatal(err)
	}
	if err := ensureAccount(id, passwdFile, root); err == nil || ownerOf(t, outside) != 0 {
		t.Errorf("a home that is a link: %v", err)
	}
}

// A mount in a home, or a home that is one, stays whose it is.
func TestKernelHomeMounts(t *testing.T) {
	mustrun.Root(t)
	root := open(t)
	home := filepath.Join(root, "agent")
	const private = `set -e; mount --make-rprivate /; `
	script := private + `h=` + home + `; mkdir -p $h/.config $h/.cache; mount -t tmpfs none $h/.config; exec "$0"`
	out := inMountNamespace(t, script, home, root)
	if out != "ok\n" {
		t.Error(out)
	}
	out = inMountNamespace(t, private+`mount -t tmpfs -o mode=755 none `+home+`; exec "$0"`, home, root)
	if !strings.Contains(out, "is a mount") {
		t.Error(out)
	}
	// One that everybody can write needs nothing, and nothing in it changes hands.
	h := home + "/.config"
	out = inMountNamespace(t, private+`mount -t tmpfs -o mode=777 none `+home+`; mkdir `+h+`; chown 7 `+h+`; "$0"; stat -c %u `+h, home, root)
	if out != home+" 0 <nil>\n7\n" {
		t.Error(out)
	}
}

// A volume of the engine changes hands with all that its owner has in it, also
// where root may not look into what is closed; directories of the host do not.
func TestKernelHomeVolumes(t *testing.T) {
	mustrun.Root(t)
	root := open(t)
	home := filepath.Join(root, "agent")
	for name, owner := range map[string]int{
		"volumes/state/_data": 1000, "volumes/state/_data/deep": 1000, "volumes/state/_data/deep/er": 1000, "volumes/state/_data/roots": 0,
		"volumes/fresh/_data": 0, "volumes/full/_data": 0, "volumes/full/_data/x": 0, "volumes/mine/_data": 501, "volumes/mine/_data/x": 1000,
		"host": 1000, "inner": 1000, "outside": 1000, "agent": 1000, "agent/.cache": 1000, "agent/.config": 0,
		"agent/.claude": 1000, "agent/.codex": 1000, "agent/.gemini": 1000, "agent/.qwen": 1000, "agent/.host": 1000,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(root, "volumes/state/_data")
	if err := os.WriteFile(state+"/deep/er/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root+"/outside", state+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{state + "/deep/er/file", state + "/link"} {
		if err := os.Lchown(name, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	script := `set -e; cd ` + root + `; mount --make-rprivate /; mount -t tmpfs none agent/.config
		for v in state:claude fresh:codex full:gemini mine:qwen; do mount --bind volumes/${v%:*}/_data agent/.${v#*:}; done
		mount --bind host agent/.host; mkdir volumes/state/_data/deep/mount; mount --bind inner agent/.claude/deep/mount
		exec setpriv --bounding-set=-dac_override,-dac_read_search,-fowner "$0"`
	if out := inMountNamespace(t, script, home, root); out != "ok\n" {
		t.Error(out)
	}
	for name, want := range map[string]int{
		"volumes/state/_data": 501, "volumes/state/_data/deep": 501, "volumes/state/_data/deep/er": 501, "volumes/state/_data/deep/er/file": 501,
		"volumes/state/_data/link": 501, "volumes/state/_data/roots": 0, "volumes/fresh/_data": 501, "volumes/full/_data": 0, "volumes/full/_data/x": 0,
		"volumes/mine/_data/x": 1000, "host": 1000, "inner": 1000, "outside": 1000,
	} {
		if got := ownerOf(t, filepath.Join(root, name)); got != want {
			t.Errorf("%s belongs to %d, want %d", name, got, want)
		}
	}
}

// open makes a directory that anybody may enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "privdrop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// homeRole prints the error of EnsureAccount, and what of a mount it changed.
func homeRole() {
	home := os.Getenv("PRIVDROP_TEST_HOME")
	id := Identity{UID: 501, GID: 20, Name: "agent", Home: home, Shell: "/bin/sh"}
	if err := ensureAccount(id, os.Getenv("PRIVDROP_TEST_PASSWD"), os.Getenv("PRIVDROP_TEST_ROOT")); err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range []struct { // in this order: the first that is wrong is printed
		name string
		want uint32
	}{{home, 501}, {home + "/.cache", 501}, {home + "/.config", 0}} {
		var st unix.Stat_t
		if err := unix.Lstat(c.name, &st); err != nil || st.Uid != c.want {
			fmt.Println(c.name, st.Uid, err)
			return
		}
	}
	fmt.Println("ok")
}

// inMountNamespace runs script there, then EnsureAccount in its place, and
// prints its error and what changed hands.
func inMountNamespace(t *testing.T, script, home, root string) string {
	t.Helper()
	passwdFile, _ := files(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", script, exe)
	cmd.Env = append(os.Environ(), roleVariable+"=home", "PRIVDROP_TEST_HOME="+home, "PRIVDROP_TEST_ROOT="+root, "PRIVDROP_TEST_PASSWD="+passwdFile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

// A volume that the agent can use needs no other owner, and no warning.
func TestUsable(t *testing.T) {
	id := Identity{UID: 1000, GID: 1000}
	for name, c := range map[string]struct {
		mode uint16
		gid  uint32
		want bool
	}{
		"everybody's":               {0o777, 0, true},
		"everybody's, setgid":       {0o2777, 1000, true},
		"the group's":               {0o2770, 1000, true},
		"another group's":           {0o2770, 1001, false},
		"root's":                    {0o755, 0, false},
		"the group's to read":       {0o750, 1000, false},
		"everybody's but the group": {0o707, 1000, false},
	} {
		if got := usable(unix.Statx_t{Mode: c.mode, Gid: c.gid}, id); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
