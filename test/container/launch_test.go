package container

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// launcher is agent-init on the host, as a person types it in a directory of theirs.
type launcher struct {
	program, dir string
	env          []string
}

const launchKey = "sk-ant-launch-0123456789"

// newLauncher takes the program out of the image, so that both are of one version.
func newLauncher(t *testing.T, e *engine) launcher {
	t.Helper()
	l := launcher{program: filepath.Join(t.TempDir(), "agent-init"), dir: filepath.Join(t.TempDir(), "it's a repo")}
	made := e.must(t, "create", e.claude)
	defer e.docker("rm", made)
	e.must(t, "cp", made+":/usr/local/bin/agent-init", l.program)
	for _, args := range [][]string{{"init", "-q", l.dir}, {"-C", l.dir, "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "one"}} {
		if r := run("git", args...); r.code != 0 {
			t.Fatal(r.stderr)
		}
	}
	l.give(t, l.dir)
	l.env = append(os.Environ(), "ANTHROPIC_API_KEY="+launchKey, "TZ=Asia/Tokyo",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*") // the test is root, and the repository the agent's
	return l
}

// give makes a directory the agent's, as a person's own is theirs.
func (l launcher) give(t *testing.T, dir string) {
	t.Helper()
	if r := run("chown", "-R", "1000:1000", dir); r.code != 0 {
		t.Fatal(r.stderr)
	}
}

func (l launcher) types(args ...string) result {
	cmd := exec.Command(l.program, args...)
	cmd.Env, cmd.Dir = l.env, l.dir
	return finish(cmd, 2*time.Minute)
}

func (l launcher) must(t *testing.T, args ...string) string {
	t.Helper()
	r := l.types(args...)
	if r.code != 0 {
		t.Fatalf("agent-init %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// testLaunch starts Claude Code by one command on the host, with the key in the person's environment alone.
func testLaunch(t *testing.T, e *engine, n *internet) {
	l := newLauncher(t, e)
	start := []string{"launch", "claude", "--image", e.claude, "--ca", n.authority}
	hello := []string{"--", "claude", "-p", "say hello"}
	t.Cleanup(func() {
		for _, volume := range strings.Fields(e.must(t, "volume", "ls", "-q")) {
			if strings.HasPrefix(volume, "claude-it-s-a-repo-") || strings.HasPrefix(volume, "agent-claude") {
				e.docker("volume", "rm", volume)
			}
		}
	})

	t.Run("hello", func(t *testing.T) {
		n.llm.keys.Clear()
		if r := l.types(args(start, hello)...); r.code != 0 || !strings.Contains(r.stdout, saying) {
			t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		} else {
			t.Logf("from the command to the end of the answer: %v", r.took)
		}
		n.llm.keys.Range(func(key, _ any) bool {
			if key != launchKey {
				t.Errorf("the API was shown %q", key)
			}
			return true
		})
	})
	t.Run("printed", func(t *testing.T) {
		cmd := exec.Command("sh", "-eu", "-c", strings.ReplaceAll(l.must(t, args(start, []string{"--print"}, hello)...), " -it ", " -i "))
		cmd.Env, cmd.Dir = l.env, l.dir
		if r := finish(cmd, 2*time.Minute); r.code != 0 || !strings.Contains(r.stdout, saying) {
			t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("model-from-host", func(t *testing.T) {
		n.llm.keys.Clear()
		before := n.llm.prompts.Load()
		host := &internet{web: n.llm}
		host.serve(t, e.netns, 11434)
		if r := l.types(args(start, []string{"--model-from-host", "11434"}, hello)...); r.code != 0 || !strings.Contains(r.stdout, saying) {
			t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		if arrivals, _ := host.seen(); len(arrivals) == 0 || n.llm.prompts.Load() == before {
			t.Errorf("seen on the host: %v", arrivals)
		}
		if _, shown := n.llm.keys.Load(launchKey); shown {
			t.Error("the host's model was shown the key of another")
		}
	})
	t.Run("background", func(t *testing.T) { testLaunchBackground(t, e, l, start) })
	t.Run("worktree", func(t *testing.T) {
		if r := run("git", "-c", "safe.directory=*", "-C", l.dir, "worktree", "add", "-q", l.dir+"-fix", "-b", "fix"); r.code != 0 {
			t.Fatal(r.stderr)
		}
		l.give(t, l.dir)
		l.give(t, l.dir+"-fix")
		out := l.types(args(start, []string{"--worktree", "fix", "--env", "GIT_AUTHOR_NAME=x", "--env", "GIT_AUTHOR_EMAIL=x", "--env", "GIT_COMMITTER_NAME=x", "--env", "GIT_COMMITTER_EMAIL=x",
			"--", "sh", "-c", "git commit -q --allow-empty -m two && git branch --show-current && git worktree list"})...)
		if out.code != 0 || !strings.HasPrefix(out.stdout, "fix\n") || strings.Contains(out.stdout, "prunable") {
			t.Errorf("exit %d\n%s%s", out.code, out.stdout, out.stderr)
		}
	})
}

// testLaunchBackground: the key is in nothing that the engine or the agent shows, commands work by -C, and what is allowed
// for good is allowed in the next container of the directory.
func testLaunchBackground(t *testing.T, e *engine, l launcher, start []string) {
	started := l.must(t, args(start, []string{"--detach", "--allow", "given.example", "--inbound", "3000", "--model-from-host", "11434", "--", "sleep", "infinity"})...)
	name, _, _ := strings.Cut(started, " ")
	stop := func() {
		if r := l.types("launch", "--stop", name); r.code != 0 {
			e.docker("rm", "-f", name)
		}
	}
	defer stop()
	var listed struct {
		Containers []struct{ Name, Agent, Dir string }
	}
	if err := json.Unmarshal([]byte(l.must(t, "launch", "--list", "--json")), &listed); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(listed.Containers); !strings.Contains(got, "{"+name+" claude "+l.dir+"}") {
		t.Errorf("listed: %s", got)
	}
	if shown := e.must(t, "inspect", name); strings.Contains(shown, launchKey) || !strings.Contains(shown, "given.example") || !strings.Contains(shown, `"TZ=Asia/Tokyo"`) {
		t.Errorf("the engine shows %s", shown)
	}
	for target, want := range map[string]string{
		"given.example": ": allowed", "3000": ": allowed", "host.docker.internal:11434": ": allowed", "kept.example": ": denied", "host.docker.internal:80": ": denied",
	} {
		if said := l.must(t, "-C", name, "explain", target); !strings.Contains(said, want) {
			t.Errorf("explain %s, want %q: %s", target, want, said)
		}
	}
	if r := l.types("-C", name, "exec", "--", "sh", "-c", "cat /run/secrets/*; ls /run/secrets; ls /proc/1/root"); strings.Contains(r.stdout+r.stderr, launchKey) {
		t.Errorf("the agent reads the key")
	}
	l.must(t, "-C", name, "allow", "kept.example", "--save", "--reason", "a test")
	stop()
	again := strings.Fields(l.must(t, args(start, []string{"--detach", "--", "sleep", "infinity"})...))[0]
	if again != name {
		t.Fatalf("started %s, and then %s", name, again)
	}
	if said := l.must(t, "-C", name, "explain", "kept.example"); !strings.Contains(said, ": allowed") {
		t.Errorf("in the next container: %s", said)
	}
	if r := l.types(args(start, []string{"--detach"})...); r.code == 0 || !strings.Contains(r.stderr, "runs here already") {
		t.Errorf("a second one: exit %d\n%s", r.code, r.stderr)
	}
}
