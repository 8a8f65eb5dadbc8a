package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// victim is a directory of the machine that links of a box can point into: no
// file in it may be made, changed or given away.
func victim(t *testing.T) (lab.Bind, func()) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	rig.Must(t, os.WriteFile(file, []byte("root's own\n"), 0o600))
	rig.Must(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
	return lab.Bind{Source: dir, Target: "/victim", Writable: true}, func() {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil || string(data) != "root's own\n" {
			t.Errorf("the victim holds %q (%v)", data, err)
		}
		for _, d := range []string{dir, filepath.Join(dir, "dir")} {
			entries, err := os.ReadDir(d)
			rig.Must(t, err)
			for _, e := range entries {
				if d != dir || e.Name() != "file" && e.Name() != "dir" {
					t.Errorf("%s was made through a link", filepath.Join(d, e.Name()))
				}
			}
		}
		for path, mode := range map[string]os.FileMode{file: 0o600, filepath.Join(dir, "dir"): 0o700} {
			var st unix.Stat_t
			rig.Must(t, unix.Stat(path, &st))
			if st.Uid != 0 || st.Gid != 0 || os.FileMode(st.Mode&0o777) != mode || st.Nlink > 2 {
				t.Errorf("%s belongs to %d:%d now, mode %o", path, st.Uid, st.Gid, st.Mode)
			}
		}
	}
}

// TestLinksLeadNowhere: nothing is read or written through a link, or in a
// directory, that somebody else has put where agent-init writes.
func TestLinksLeadNowhere(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	link := func(path, to string) lab.File {
		return lab.File{Path: path, Link: to, UID: lab.AgentUID, GID: lab.AgentUID}
	}
	theirs := func(path string) lab.File {
		return lab.File{Path: path, Dir: true, UID: lab.AgentUID, GID: lab.AgentUID}
	}
	theirsOf := func(uid int, path string) lab.File { return lab.File{Path: path, Dir: true, UID: uid, GID: uid} }
	ours := func(path string) lab.File { return lab.File{Path: path, Dir: true} }
	for name, c := range map[string]struct {
		files []lab.File
		code  int // 0: it starts all the same
	}{
		"runtime directory is a link":           {files: []lab.File{link("/run/agent-init", "/victim/dir")}},
		"runtime directory is a dangling link":  {files: []lab.File{link("/run/agent-init", "/victim/new")}},
		"runtime directory is the agent's":      {files: []lab.File{theirs("/run/agent-init"), link("/run/agent-init/status.json.new", "/victim/file"), link("/run/agent-init/keeper.lock", "/victim/file")}},
		"runtime directory can be written":      {files: []lab.File{{Path: "/run/agent-init", Dir: true, Mode: 0o777}}},
		"both runtime directories are links":    {files: []lab.File{link("/run/agent-init", "/victim/dir"), link("/dev/shm/agent-init", "/victim/dir")}, code: 71},
		"both runtime directories are agent's":  {files: []lab.File{theirs("/run/agent-init"), theirs("/dev/shm/agent-init")}, code: 71},
		"lock is a link":                        {files: []lab.File{ours("/run/agent-init"), link("/run/agent-init/keeper.lock", "/victim/file")}, code: 71},
		"agent file is a link":                  {files: []lab.File{ours("/run/agent-init"), link("/run/agent-init/agent.json.new", "/victim/file")}, code: 71},
		"published file is a link":              {files: []lab.File{ours("/run/agent-init"), link("/run/agent-init/agent.json", "/victim/file"), link("/run/agent-init/status.json", "/victim/file")}},
		"audit directory is a link":             {files: []lab.File{link("/var/log/agent-init", "/victim/dir")}},
		"audit directory is the agent's":        {files: []lab.File{theirs("/var/log/agent-init"), link("/var/log/agent-init/audit.jsonl", "/victim/file")}},
		"audit file is a link":                  {files: []lab.File{ours("/var/log/agent-init"), link("/var/log/agent-init/audit.jsonl", "/victim/file")}},
		"older audit file is a link":            {files: []lab.File{ours("/var/log/agent-init"), link("/var/log/agent-init/audit.jsonl.1", "/victim/file")}},
		"no directory for the audit log at all": {files: []lab.File{link("/var/log/agent-init", "/victim/dir"), ours("/run/agent-init"), link("/run/agent-init/log", "/victim/dir")}, code: 71},
		"home is a link":                        {files: []lab.File{link("/home/second", "/victim/dir")}},
		"directories of the home are links":     {files: []lab.File{theirs("/home/second"), link("/home/second/.config", "/victim/dir"), link("/home/second/.cache", "/etc"), link("/home/second/.ssh", "/victim/file")}},
	} {
		t.Run(name, func(t *testing.T) {
			bind, untouched := victim(t)
			opts := lab.BoxOptions{
				Caps:  append(lab.DefaultCaps(), "CHOWN", "FOWNER", "DAC_OVERRIDE"), // a root that could do much harm
				Binds: []lab.Bind{bind},
				Files: append(c.files, theirsOf(1001, "/workspace"), lab.File{Path: "/etc/passwd", Data: []byte("root:x:0:0::/root:/bin/sh\nsecond:x:1001:1001::/home/second:/bin/sh\n")}),
			}
			w := rig.StartIn(t, l, rig.Allowlist, opts, "agent-init", "run", "--user", "second", "--", "sh", "-c", "echo started; exec sleep infinity")
			if c.code != 0 {
				rig.Refused(t, w.Agent.Wait(0), c.code)
				upstreamOnly(w)
				untouched()
				return
			}
			w.Ready()
			w.Blocked("tcp", "1.1.1.1:443")
			w.Works("http", "https://ok.test/")
			s, code := w.Status()
			if code != 0 {
				t.Errorf("not healthy: %v", s["why"])
			}
			audit, _ := s["audit"].(map[string]any)
			if data, err := w.Box.ReadFile(fmt.Sprint(audit["file"])); err != nil || len(data) == 0 {
				t.Errorf("nothing is recorded in %v: %v", audit["file"], err)
			}
			if r := w.Root("agent-init", "reload"); r.Code != 0 {
				t.Errorf("reload: %s", r)
			}
			for _, path := range []string{"/etc", "/etc/passwd"} {
				if r := w.Root("stat", "-c", "%u:%g", path); r.Stdout != "0:0\n" {
					t.Errorf("%s belongs to %s", path, r.Stdout)
				}
			}
			untouched()
		})
	}
}
