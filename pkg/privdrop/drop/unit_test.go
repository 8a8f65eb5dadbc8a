package drop

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

func TestEnvironment(t *testing.T) {
	id := privdrop.Identity{Name: "agent", Home: "/home/agent", Shell: "/bin/sh"}
	got := environment([]string{
		"PATH=/bin", "HOME=/root", "AGENT_INIT_TOKEN=secret", "AGENT_SESSION=main", "LISTEN_FDS=1", "NOTIFY_SOCKET=/run/x",
		"A=1", "A=2", "no equals sign", "=C:=x", "NUL=a\x00b", "EMPTY=", "AGENT_INIT_=x",
	}, id)
	want := []string{"PATH=/bin", "AGENT_SESSION=main", "A=2", "EMPTY=", "HOME=/home/agent", "USER=agent", "LOGNAME=agent", "SHELL=/bin/sh"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b", "b/folder"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"a/locked": 0o644, "a/both": 0o644, "b/both": 0o755, "b/tool": 0o755, "here": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	path := dir + "/a:/nonexistent:" + dir + "/here:" + dir + "/b"
	for _, c := range []struct {
		name, path string
		want       string
		code       int
	}{
		{"tool", path, dir + "/b/tool", 0},
		{"both", path, dir + "/b/both", 0},
		{"locked", path, "", 126},
		{"absent", path, "", 127},
		{"folder", path, "", 126},
		{"here", path, "", 127},
		{"here", "", "", 127},
		{"here", "/nonexistent:", "./here", 0},
		{"./here", path, "./here", 0},
		{dir + "/b/tool", "", dir + "/b/tool", 0},
		{dir + "/a/locked", "", "", 126},
		{dir + "/here/x", "", "", 127}, // ENOTDIR
		{"b", path, "", 127},
		{"./b", path, "", 126}, // a directory
		{"", path, "", 127},
	} {
		got, err := lookPath(c.name, c.path)
		code := 0
		if exec := (*ExecError)(nil); errors.As(err, &exec) {
			code = exec.ExitCode()
		}
		if got != c.want || code != c.code {
			t.Errorf("%q in %q: %q, code %d (%v); want %q, code %d", c.name, c.path, got, code, err, c.want, c.code)
		}
	}
	if got, err := lookPath("sh", ""); err != nil || !strings.HasSuffix(got, "/sh") {
		t.Errorf("sh without a PATH: %q, %v", got, err)
	}
}

func TestExecErrorCodes(t *testing.T) {
	for errno, want := range map[syscall.Errno]int{
		syscall.ENOENT: 127, syscall.ENOTDIR: 127, syscall.EACCES: 126, syscall.ENOEXEC: 126, syscall.EISDIR: 126, syscall.E2BIG: 126,
	} {
		err := &ExecError{"x", errno}
		if got := err.ExitCode(); got != want || !errors.Is(err, errno) {
			t.Errorf("%v: code %d, want %d", errno, got, want)
		}
	}
}

const goodStatus = `Name:	x
Uid:	1000	1000	1000	1000
Gid:	1001	1001	1001	1001
Groups:	44 20 
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	1
`

// Every single deviation is caught.
func TestCheckStatus(t *testing.T) {
	id := privdrop.Identity{UID: 1000, GID: 1001, Groups: []uint32{20, 44}}
	if err := parseStatus(goodStatus).check(id); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(goodStatus), "\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "Name" || name == "Seccomp_filters" {
			continue
		}
		last := strings.TrimRight(value, " ")
		for _, changed := range []string{
			strings.Replace(goodStatus, line+"\n", "", 1),
			strings.Replace(goodStatus, line, name+":"+last[:len(last)-1]+"7", 1),
			strings.Replace(goodStatus, line, name+":"+value+" 3", 1),
			strings.Replace(goodStatus, line, name+":", 1),
		} {
			if parseStatus(changed).check(id) == nil {
				t.Errorf("passed:\n%s", changed)
			}
		}
	}
}
