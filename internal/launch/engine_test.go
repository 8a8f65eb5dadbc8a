package launch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
)

// fake is an engine that is a script, see testdata/engine.sh.
type fake struct {
	Engine
	dir string
}

func newFake(t *testing.T, name string) fake {
	t.Helper()
	script, err := os.ReadFile("testdata/engine.sh")
	if err != nil {
		t.Fatal(err)
	}
	f := fake{dir: t.TempDir()}
	f.Engine = Engine{Name: name, Path: filepath.Join(f.dir, name)}
	if err := os.WriteFile(f.Path, script, 0o755); err != nil {
		t.Fatal(err)
	}
	linkProgram(t, f.dir)
	t.Setenv("PATH", f.dir+":"+os.Getenv("PATH"))
	return f
}

// linkProgram has images of the fake engine come with what has the build information of an agent-init, and no code.
func linkProgram(t *testing.T, dir string) {
	t.Helper()
	program, err := filepath.Abs("testdata/agent-init")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "agent-init")); err != nil {
		t.Fatal(err)
	}
}

func (f fake) write(t *testing.T, name string, v any) {
	t.Helper()
	data, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		data = string(b)
	}
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// calls is what the engine was asked to do since the last question.
func (f fake) calls(t *testing.T) string {
	t.Helper()
	path := filepath.Join(f.dir, "calls")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (f fake) image(t *testing.T, id, agent, routes string, tags ...string) {
	t.Helper()
	known, _ := os.ReadFile(filepath.Join(f.dir, "images"))
	f.write(t, "images", string(known)+id+"\n")
	f.write(t, "image-"+id+".json", map[string]any{
		"Id": id, "RepoTags": tags, "Created": time.Unix(1000, 0),
		"Config": map[string]any{
			"Labels":     map[string]string{agentLabel: agent, routesLabel: routes, baseLabel: "debian"},
			"Entrypoint": []string{inside, "run", "--"},
			"Cmd":        []string{agent},
			"Volumes":    map[string]any{"/home/agent/.claude": struct{}{}},
		},
	})
}

func TestList(t *testing.T) {
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, name)
			if all, err := f.List(t.Context()); err != nil || len(all) != 0 {
				t.Fatalf("of an engine without containers: %v, %v", all, err)
			}
			f.write(t, "containers", "old\nnew\n")
			for id, created := range map[string]string{"old": "2026-01-01T00:00:00Z", "new": "2026-01-02T00:00:00.5Z"} {
				f.write(t, "container-"+id+".json", map[string]any{
					"Id": id, "Name": "/" + id + "-name", "Created": created,
					"State":  map[string]any{"Status": "running", "Running": true},
					"Config": map[string]any{"Image": "agent-claude", "Labels": map[string]string{agentLabel: "claude"}},
					"Mounts": []map[string]string{
						{"Type": "volume", "Source": "/var/lib/x", "Destination": "/home/agent"}, {"Type": "bind", "Source": "/src", "Destination": "/workspace"},
					},
				})
			}
			all, err := f.List(t.Context())
			if err != nil || len(all) != 2 {
				t.Fatalf("%v, %v", all, err)
			}
			if c := all[0]; c.ID != "new" || c.Name != "new-name" || c.Agent != "claude" || c.Dir != "/src" || !c.Running || c.Image != "agent-claude" || c.Created.Day() != 2 {
				t.Errorf("the newest is %+v", c)
			}
		})
	}
}

// TestListAsksAgain: a container that ends between two questions is no error, and an engine that goes on failing is one.
func TestListAsksAgain(t *testing.T) {
	f := newFake(t, "docker")
	f.write(t, "containers", "gone\n")
	if all, err := f.List(t.Context()); err == nil || !strings.Contains(err.Error(), "docker container: ") {
		t.Errorf("of one that is never there: %v, %v", all, err)
	}
	f.write(t, "containers", "x\n")
	f.write(t, "container-x.json", "no json")
	if all, err := f.List(t.Context()); err == nil || !strings.Contains(err.Error(), "docker container inspect: invalid") {
		t.Errorf("of an answer that is none: %v, %v", all, err)
	}
}

func TestFind(t *testing.T) {
	f := newFake(t, "podman")
	t.Setenv("PATH", f.dir+":/usr/bin:/bin") // a docker of the machine's may answer or not
	if e, err := Find(t.Context(), "podman"); err != nil || e.Name != "podman" || e.Path != f.Path {
		t.Errorf("%v, %v", e, err)
	}
	if e, err := Find(t.Context(), "lxc"); err == nil {
		t.Errorf("found %v", e)
	}
	// The first that answers counts, not the first that is installed.
	silent := filepath.Join(f.dir, "docker")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if e, err := Find(t.Context(), ""); err != nil || e.Name != "podman" {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := Find(t.Context(), "docker"); err == nil || !strings.Contains(err.Error(), "docker ps: Cannot connect") {
		t.Errorf("%v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "none of docker, podman") {
		t.Errorf("%v", err)
	}
}

func TestPick(t *testing.T) {
	all := []Container{
		{ID: "0123456789abcdef", Name: "claude-a-1", Agent: "claude", Running: true, Dir: "/src/a"},
		{ID: "fedcba9876543210", Name: "claude-b-2", Agent: "claude", Running: true, Dir: "/src/b"},
		{ID: "aaaaaaaaaaaaaaaa", Name: "codex-a-3", Agent: "codex", Running: true, Dir: "/src/a"},
		{ID: "bbbbbbbbbbbbbbbb", Name: "gemini-a-4", Agent: "gemini", Dir: "/src/a"},
		{ID: "cccccccccccccccc", Name: "claude-a", Agent: "codex", Running: true},
	}
	for word, want := range map[string]string{
		"claude-a-1": "claude-a-1", "claude-a": "claude-a", "claude-b": "claude-b-2", "fedcba987654": "claude-b-2", "codex-a": "codex-a-3",
		"/src/b": "claude-b-2",
		"claude": "several", "": "several", "/src/a": "several", "gemini": "there is no", "0123": "there is no", "x": "there is no",
	} {
		c, err := pick(all, word)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && c.Name != want {
			t.Errorf("%q: %v, %v, want %s", word, c.Name, err, want)
		}
	}
	t.Chdir(t.TempDir())
	here, err := filepath.EvalSymlinks(".")
	if err != nil {
		t.Fatal(err)
	}
	if here, err = filepath.Abs(here); err != nil {
		t.Fatal(err)
	}
	if c, err := pick([]Container{all[0], {Name: "here", Running: true, Dir: here}}, "."); err != nil || c.Name != "here" {
		t.Errorf("the directory's: %v, %v", c, err)
	}
	if c, err := pick(all[:1], ""); err != nil || c.Name != "claude-a-1" {
		t.Errorf("the only one: %v, %v", c, err)
	}
	if c, err := pick(all[3:4], ""); err == nil {
		t.Errorf("one that has ended: %v", c)
	}
}

func TestExec(t *testing.T) {
	e := Engine{Name: "docker", Path: "/bin/docker"}
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("COLORTERM", "")
	t.Setenv("NO_COLOR", "1")
	cmd, err := e.Exec(t.Context(), true, "claude-a", "log", "-f")
	if err != nil || strings.Join(cmd.Args, " ") != "/bin/docker exec -it -e TERM=xterm-256color -e NO_COLOR=1 --user=0:0 claude-a /usr/local/bin/agent-init log -f" {
		t.Errorf("%v, %v", cmd, err)
	}
	for _, name := range []string{"", "-it", "a b", "a/b", "a\nb"} {
		if cmd, err := e.Exec(t.Context(), false, name); err == nil {
			t.Errorf("%q: %v", name, cmd.Args)
		}
		if err := e.Stop(t.Context(), name); err == nil {
			t.Errorf("stopped %q", name)
		}
	}
}

// remedyOf is what an error tells to do.
func remedyOf(err error) string {
	var f *fault.Fault
	errors.As(err, &f)
	if f == nil {
		return ""
	}
	return f.Remedy
}
