package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/netns"
)

const agent = 1000

// tree makes a directory with a policy, as root would install it.
func tree(t *testing.T) string {
	t.Helper()
	mustrun.Root(t)
	dir := filepath.Join(t.TempDir(), "etc")
	write := func(name, data string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("policy.yaml", "user: agent\n")
	write("allowlist.txt", "a.example\n")
	write("allowlist.d/20.txt", "b.example\n")
	write("allowlist.d/10.yaml", "domains: [c.example]\n")
	write("allowlist.d/.hidden.txt", "https://no\n")
	write("allowlist.d/README", "not a list\n")
	write("hosts", "192.0.2.1 h.example\n")
	return dir
}

func read(dir string) (*Bundle, error) {
	return Read(ReadOptions{Dir: dir, HostsFile: filepath.Join(dir, "hosts"), AgentUID: agent})
}

func TestRead(t *testing.T) {
	dir := tree(t)
	b, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range b.Files {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "policy.yaml allowlist.txt allowlist.d/10.yaml allowlist.d/20.txt" {
		t.Errorf("files: %s", got)
	}
	p, err := Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(rules(p), " "); got != "a.example c.example b.example" || len(p.Hosts("h.example")) != 1 {
		t.Errorf("rules: %s, hosts %v", got, p.hosts)
	}
	if got := warnings(p); got != "allowlist.d/README: not read: its name ends neither in .txt nor in .yaml" {
		t.Errorf("warnings: %s", got)
	}
}

func TestReadNothing(t *testing.T) {
	mustrun.Root(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		if b, err := read(d); err != nil || len(b.Files) != 0 || b.Hosts != nil || b.Warnings != nil {
			t.Errorf("%s: %+v, %v", d, b, err)
		}
	}
}

// E61, E62: whoever is not root has no hand in the policy.
func TestReadRefuses(t *testing.T) {
	before := len(openFiles(t))
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, dir string)
		want string // in the error
	}{
		{"the agent's file", func(t *testing.T, dir string) {
			must(t, os.Chown(dir+"/allowlist.txt", agent, 0))
		}, "allowlist.txt belongs to the agent (uid 1000)"},
		{"somebody's file", func(t *testing.T, dir string) {
			must(t, os.Chown(dir+"/policy.yaml", 1234, 0))
		}, "policy.yaml belongs to uid 1234, not to root"},
		{"writable by everyone", func(t *testing.T, dir string) {
			must(t, os.Chmod(dir+"/allowlist.d/20.txt", 0o646))
		}, "20.txt is writable by everyone (mode 0646)"},
		{"writable by a group", func(t *testing.T, dir string) {
			must(t, os.Chown(dir+"/allowlist.txt", 0, 50))
			must(t, os.Chmod(dir+"/allowlist.txt", 0o664))
		}, "allowlist.txt is writable by group 50 (mode 0664)"},
		{"writable by root's group", func(t *testing.T, dir string) {
			must(t, os.Chmod(dir+"/allowlist.txt", 0o664))
		}, "allowlist.txt is writable by group 0 (mode 0664)"},
		{"a directory that root's group writes", func(t *testing.T, dir string) {
			must(t, os.Chmod(dir+"/allowlist.d", 0o775))
		}, "allowlist.d is writable by group 0 (mode 0775)"},
		{"a directory above that root's group writes", func(t *testing.T, dir string) {
			must(t, os.Chmod(filepath.Dir(dir), 0o775))
		}, "is writable by group 0 (mode 0775)"},
		{"a sticky directory, into which what is root's can be moved", func(t *testing.T, dir string) {
			must(t, os.Chmod(dir+"/allowlist.d", 0o777|os.ModeSticky))
		}, "allowlist.d is writable by everyone (mode 1777)"},
		{"a sticky directory without a file", func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir+"/policy.yaml"))
			must(t, os.RemoveAll(dir+"/allowlist.txt"))
			must(t, os.RemoveAll(dir+"/allowlist.d"))
			must(t, os.Chmod(dir, 0o777|os.ModeSticky))
		}, "etc is writable by everyone (mode 1777)"},
		{"the agent's directory", func(t *testing.T, dir string) {
			must(t, os.Chown(dir+"/allowlist.d", agent, 0))
		}, "allowlist.d belongs to the agent"},
		{"a directory above", func(t *testing.T, dir string) {
			must(t, os.Chown(filepath.Dir(dir), agent, 0))
		}, "belongs to the agent"},
		{"a directory that everyone writes", func(t *testing.T, dir string) {
			must(t, os.Chmod(dir, 0o777))
		}, "is writable by everyone"},
		{"a link into the agent's directory", func(t *testing.T, dir string) {
			home := t.TempDir()
			must(t, os.WriteFile(home+"/x", nil, 0o644))
			must(t, os.Chown(home, agent, agent))
			must(t, os.Remove(dir+"/allowlist.txt"))
			must(t, os.Symlink(home+"/x", dir+"/allowlist.txt"))
		}, "belongs to the agent"},
		{"a link by way of the agent's directory", func(t *testing.T, dir string) {
			home := t.TempDir()
			must(t, os.Rename(dir+"/allowlist.txt", dir+"/real"))
			must(t, os.Symlink(dir+"/real", home+"/link"))
			must(t, os.Chown(home, agent, agent))
			must(t, os.Symlink(home+"/link", dir+"/allowlist.txt"))
		}, "belongs to the agent"},
		{"the agent's link in a sticky directory", func(t *testing.T, dir string) {
			sticky := t.TempDir()
			must(t, os.Rename(dir+"/allowlist.txt", dir+"/real"))
			must(t, os.Symlink(dir+"/real", sticky+"/link"))
			must(t, os.Lchown(sticky+"/link", agent, agent))
			must(t, os.Chmod(sticky, 0o777|os.ModeSticky))
			must(t, os.Symlink(sticky+"/link", dir+"/allowlist.txt"))
		}, "link belongs to the agent"},
		{"a loop of links", func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/allowlist.txt"))
			must(t, os.Symlink("allowlist.txt", dir+"/allowlist.txt"))
		}, "the symbolic link leads nowhere"},
		{"a pipe", func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/allowlist.txt"))
			must(t, unix.Mkfifo(dir+"/allowlist.txt", 0o644))
		}, "not a regular file"},
		{"a directory in place of a file", func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+"/allowlist.d/30.txt", 0o755))
		}, "30.txt: a directory, where a file should be; check the path on the host, if this is a mount: -v PATH:"},
		{"a file in place of a directory", func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir+"/allowlist.d"))
			must(t, os.WriteFile(dir+"/allowlist.d", nil, 0o644))
		}, "allowlist.d: not a directory"},
		{"a dangling link", func(t *testing.T, dir string) {
			must(t, os.Symlink("nowhere", dir+"/allowlist.d/30.txt"))
		}, "30.txt: the symbolic link leads to "},
		{"another ending", func(t *testing.T, dir string) {
			must(t, os.WriteFile(dir+"/allowlist.d/x.yml", nil, 0o644))
		}, "x.yml: files in YAML end in .yaml here; rename it"},
		{"an access control list", func(t *testing.T, dir string) {
			// Its mask shows as the bits of the group, which is root's.
			list := binary.LittleEndian.AppendUint32(nil, 2) // version, linux/posix_acl_xattr.h
			for _, e := range []struct {
				tag, perm uint16
				id        uint32
			}{{0x01, 6, ^uint32(0)}, {0x02, 6, agent}, {0x04, 4, ^uint32(0)}, {0x10, 6, ^uint32(0)}, {0x20, 4, ^uint32(0)}} {
				list = binary.LittleEndian.AppendUint16(list, e.tag)
				list = binary.LittleEndian.AppendUint16(list, e.perm)
				list = binary.LittleEndian.AppendUint32(list, e.id)
			}
			if err := unix.Setxattr(dir+"/allowlist.txt", "system.posix_acl_access", list, 0); err != nil {
				mustrun.Lacks(t, "the file system has no access control lists: %v", err)
			}
		}, "allowlist.txt is writable by way of an access control list"},
		{"too many", func(t *testing.T, dir string) {
			for i := range maxFiles {
				must(t, os.WriteFile(fmt.Sprintf("%s/allowlist.d/%d.txt", dir, i), nil, 0o644))
			}
		}, "allowlist.d: more than 1000 files; join some of them"},
		{"too large", func(t *testing.T, dir string) {
			must(t, os.Truncate(dir+"/allowlist.txt", maxFile+1))
		}, "larger than 64 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t)
			tt.do(t, dir)
			_, err := read(dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
			var file *FileError
			if errors.As(err, &file) && (file.Cause == "" || file.Remedy == "" || strings.Count(file.What(), file.Path) != 1) {
				t.Errorf("no cause, no remedy, or the path not once: %+v", file)
			}
		})
	}
	if n := len(openFiles(t)); n != before {
		t.Errorf("%d files are open, %d were before", n, before)
	}
	if _, err := Read(ReadOptions{Dir: "etc"}); err == nil {
		t.Error("a relative directory is accepted")
	}
}

func openFiles(t *testing.T) []os.DirEntry {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestReadAccepts(t *testing.T) {
	t.Run("links of a volume", func(t *testing.T) {
		dir := tree(t)
		if err := errors.Join(
			os.Rename(dir+"/allowlist.d", dir+"/..2026"),
			os.Mkdir(dir+"/allowlist.d", 0o755),
			os.Symlink("../..2026", dir+"/allowlist.d/..data"),
			os.Symlink("..data/20.txt", dir+"/allowlist.d/20.txt"),
			os.Symlink(dir+"/allowlist.d/../..2026/10.yaml", dir+"/allowlist.d/10.yaml"),
		); err != nil {
			t.Fatal(err)
		}
		b, err := read(dir)
		if err != nil || len(b.Files) != 4 || string(b.Files[3].Data) != "b.example\n" {
			t.Errorf("%+v, %v", b, err)
		}
	})
	t.Run("a sticky directory on the way", func(t *testing.T) {
		dir := tree(t)
		if err := os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		if _, err := read(dir); err != nil {
			t.Error(err)
		}
	})
}

func TestHostsFileOfTheAgent(t *testing.T) {
	dir := tree(t)
	if err := os.Chown(dir+"/hosts", agent, agent); err != nil {
		t.Fatal(err)
	}
	b, err := read(dir)
	if err != nil || b.Hosts != nil || len(b.Warnings) != 2 || !strings.Contains(b.Warnings[1].Error(), "hosts: not used: ") {
		t.Errorf("%+v, %v", b, err)
	}
}

// Volumes of Kubernetes have directories of mode 777, mounted read-only.
func TestKernelReadOnlyVolume(t *testing.T) {
	dir := tree(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := read(dir); err == nil {
		t.Fatal("a directory that everyone can write is accepted")
	}
	err := netns.OnThread(func() error { // which ends with its mount namespace
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = errors.Join(
				unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
				unix.Mount(dir, dir, "", unix.MS_BIND, ""),
				unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
			)
		}
		if err == nil {
			_, err = read(dir)
		}
		return err
	})
	if err != nil {
		t.Errorf("mounted read-only: %v", err)
	}
}
