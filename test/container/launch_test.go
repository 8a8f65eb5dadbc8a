package container

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	t.Run("another-server", func(t *testing.T) { testLaunchAnotherServer(t, n, l, args(start, hello)) })
	t.Run("background", func(t *testing.T) { testLaunchBackground(t, e, l, start) })
	t.Run("strange-images", func(t *testing.T) { testLaunchStrangeImages(t, e, l) })
	t.Run("hostile-repository", func(t *testing.T) { testLaunchHostileRepository(t, e, l) })
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

// testLaunchAnotherServer: where the person's environment names a server, the prompt goes there with the key that stands
// beside it, and neither the key of an earlier start nor a prompt to another server.
func testLaunchAnotherServer(t *testing.T, n *internet, l launcher, hello []string) {
	gateway := &llm{}
	n.web.(*http.ServeMux).Handle("evil.example.net/", gateway)
	without := slices.DeleteFunc(slices.Clone(l.env), func(v string) bool { return strings.HasPrefix(v, "ANTHROPIC_") })
	const key = "sk-ant-gateway-0123456789"
	if r := l.types(hello...); r.code != 0 { // whose key is kept
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for name, c := range map[string]struct {
		env   []string
		shown string // to the gateway; empty: the start is refused
	}{
		"key":    {[]string{"ANTHROPIC_BASE_URL=https://evil.example.net", "ANTHROPIC_API_KEY=" + key}, key},
		"token":  {[]string{"ANTHROPIC_BASE_URL=https://evil.example.net/", "ANTHROPIC_AUTH_TOKEN=" + key}, "Bearer " + key},
		"no-key": {[]string{"ANTHROPIC_BASE_URL=https://evil.example.net"}, ""},
		"cloud":  {[]string{"CLAUDE_CODE_USE_BEDROCK=1"}, ""},
	} {
		l.env = append(slices.Clone(without), c.env...)
		gateway.keys.Clear()
		before, asked := n.llm.prompts.Load(), gateway.prompts.Load()
		r := l.types(hello...)
		if n.llm.prompts.Load() != before {
			t.Errorf("%s: a prompt went to another server than the person has named", name)
		}
		if c.shown == "" {
			if r.code == 0 || gateway.prompts.Load() != asked || !strings.Contains(r.stderr, "remedy: ") {
				t.Errorf("%s: not refused: exit %d\n%s%s", name, r.code, r.stdout, r.stderr)
			}
			continue
		}
		if r.code != 0 || !strings.Contains(r.stdout, saying) {
			t.Errorf("%s: exit %d\n%s%s", name, r.code, r.stdout, r.stderr)
		}
		shown := ""
		gateway.keys.Range(func(k, _ any) bool { shown += k.(string) + " "; return true })
		if shown != c.shown+" " {
			t.Errorf("%s: the gateway was shown %q", name, shown)
		}
	}
	// The key of the gateway is nobody else's.
	l.env = without
	n.llm.keys.Clear()
	if r := l.types(hello...); r.code != 0 {
		t.Errorf("afterwards: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	n.llm.keys.Range(func(k, _ any) bool {
		if k != launchKey {
			t.Errorf("afterwards, the API was shown %q", k)
		}
		return true
	})
}

// launchProbe tells as whom and by what it was started, and what it has.
const launchProbe = `echo "uid $(id -u)"; grep CapEff /proc/self/status; tr '\\0' ' ' </proc/1/cmdline; cat /run/secrets/*; touch /workspace/started`

// testLaunchStrangeImages: no image has its program started without agent-init, whatever it says, in front or in the
// background; and one that is refused has got no key, and left nothing.
func testLaunchStrangeImages(t *testing.T, e *engine, l launcher) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsh -c '"+strings.ReplaceAll(launchProbe, "'", `'"'"'`)+"'\nexec sleep infinity\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-ant-strange-image\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const label = "LABEL org.agent-init.agent=strange org.agent-init.routes=anthropic\nCOPY script /script\nRUN chmod 755 /script\n"
	for name, c := range map[string]struct{ lines, refused string }{
		"no-base":    {"LABEL org.agent-init.base=\nENTRYPOINT [\"/script\"]\nRUN rm /usr/local/bin/agent-init", "is not made of agent-init's base"},
		"label":      {"ENTRYPOINT [\"/script\"]\nRUN rm /usr/local/bin/agent-init", "has no /usr/local/bin/agent-init"},
		"stand-in":   {"RUN cp /script /usr/local/bin/agent-init", "is another program"},
		"link":       {"RUN ln -sf /script /usr/local/bin/agent-init", "is another program"},
		"entrypoint": {"ENTRYPOINT [\"/script\"]", ""},
		"shell":      {"ENTRYPOINT /script", ""},
		"user":       {"USER agent\nCMD [\"/script\"]", ""},
		"onbuild":    {"ONBUILD RUN false\nCMD [\"/script\"]", ""},
		"health":     {"HEALTHCHECK --interval=1s CMD touch /workspace/by-root\nCMD [\"/script\"]", ""},
		"open":       {"ENV AGENT_INIT_UNSAFE_NO_FIREWALL=true\nCMD [\"/script\"]", "sets AGENT_INIT_UNSAFE_NO_FIREWALL"},
		"monitor":    {"ENV AGENT_INIT_MODE=monitor\nCMD [\"/script\"]", "sets AGENT_INIT_MODE=monitor"},
		"untested":   {"ENV AGENT_INIT_SELFTEST=off\nCMD [\"/script\"]", "sets AGENT_INIT_SELFTEST=off"},
		"flags":      {"ENTRYPOINT [\"/usr/local/bin/agent-init\", \"run\", \"--unsafe-no-firewall\", \"--\"]\nCMD [\"/script\"]", "starts agent-init in its own way"},
	} {
		t.Run(name, func(t *testing.T) {
			image := "launch-strange-" + name
			e.build(t, image, "FROM "+e.base+"\n"+label+c.lines, map[string]string{"script": script})
			l := l
			l.dir = filepath.Join(t.TempDir(), "project")
			if err := os.Mkdir(l.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			l.give(t, l.dir)
			t.Cleanup(func() {
				for _, v := range strings.Fields(e.must(t, "volume", "ls", "-q")) {
					if strings.HasPrefix(v, "agent-strange") || strings.HasPrefix(v, "strange-") {
						e.docker("volume", "rm", v)
					}
				}
			})
			for _, way := range [][]string{{"--", "sh", "-c", launchProbe}, {"--detach"}} {
				if err := os.RemoveAll(filepath.Join(l.dir, "started")); err != nil { // of the former way
					t.Fatal(err)
				}
				there := func() string { return e.must(t, "ps", "-aq", "--no-trunc") + e.must(t, "volume", "ls", "-q") }
				before := there()
				r := l.types(args([]string{"launch", "strange", "--image", image, "--secret", "anthropic=" + key}, way)...)
				said, container := r.stdout+r.stderr, ""
				if way[0] == "--detach" && r.code == 0 {
					container = strings.Fields(r.stdout)[0]
					eventually(t, "the agent runs", 2*time.Minute, func() bool { _, err := os.Stat(filepath.Join(l.dir, "started")); return err == nil })
					said = e.must(t, "logs", container) + e.docker("exec", container, "/usr/local/bin/agent-init", "history").stdout // of a session
				}
				said = strings.Join(strings.Fields(said), " ")
				refused := c.refused
				if name == "flags" && way[0] == "--" { // who names the command leaves out the image's own way
					refused = ""
				}
				switch _, started := os.Stat(filepath.Join(l.dir, "started")); {
				case refused != "" && (r.code == 0 || !strings.Contains(r.stderr, refused) || !strings.Contains(r.stderr, "remedy: ") || started == nil):
					t.Errorf("%q: not refused: exit %d\n%s", way, r.code, said)
				case refused != "" && there() != before:
					t.Errorf("%q: it left something:\n%s, before:\n%s", way, there(), before)
				case refused == "" && (started != nil || !strings.Contains(said, "uid 1000") || !strings.Contains(said, "CapEff: 0000000000000000") || strings.Contains(said, "sk-ant")):
					t.Errorf("%q: exit %d\n%s", way, r.code, said)
				}
				if container == "" {
					continue
				}
				if check := e.must(t, "inspect", "--format", "{{json .State.Health}} {{.Config.User}} {{.Path}}", container); name == "health" && !strings.HasPrefix(check, "null ") || !strings.HasSuffix(check, " 0:0 /usr/local/bin/agent-init") {
					t.Errorf("it was started as %s", check)
				}
				l.must(t, "launch", "--stop", container)
				eventually(t, "--rm has removed it", time.Minute, func() bool { return e.must(t, "ps", "-aq", "--filter", "name="+container) == "" })
			}
			if _, err := os.Stat(filepath.Join(l.dir, "by-root")); err == nil {
				t.Error("the image's health check ran, as root")
			}
		})
	}
}

// testLaunchHostileRepository: a worktree of a repository that an agent wrote is made and filled, and nothing that the
// repository names runs, or is written, on the host.
func testLaunchHostileRepository(t *testing.T, e *engine, l launcher) {
	top := t.TempDir()
	ran, victim := filepath.Join(top, "ran"), filepath.Join(top, "bashrc")
	l.dir = filepath.Join(top, "r")
	git := func(words ...string) {
		t.Helper()
		if r := run("git", args([]string{"-C", l.dir, "-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x"}, words)...); r.code != 0 {
			t.Fatal(r.stderr)
		}
	}
	write := func(path, data string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(victim, "mine\n")
	write(filepath.Join(l.dir, "file"), "what is committed\n")
	write(filepath.Join(l.dir, ".gitattributes"), "* filter=evil\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "one")
	evil := "touch '" + ran + "'; echo; id -u >>'" + l.dir + "/.git/by'; cat"
	write(filepath.Join(l.dir, ".git/hooks/post-checkout"), "#!/bin/sh\n"+evil+" /dev/null\n")
	for key, value := range map[string]string{"filter.evil.smudge": evil, "hook.x.command": evil, "hook.x.event": "post-checkout"} {
		git("config", key, value)
	}
	log := filepath.Join(l.dir, ".git/logs/refs/heads/fix")
	if err := os.Symlink(victim, log); err != nil {
		t.Fatal(err)
	}
	l.give(t, l.dir)
	r := l.types("launch", "claude", "--image", e.base, "--worktree", "fix", "--", "sh", "-c", "cat file; git branch --show-current; stat -c %u . file")
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the repository's ran on the host")
	}
	if data, err := os.ReadFile(victim); err != nil || string(data) != "mine\n" {
		t.Errorf("a file of the host's was written: %q, %v", data, err)
	}
	if r.code == 0 {
		t.Errorf("a reflog that leads elsewhere: %s%s", r.stdout, r.stderr)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	git("worktree", "prune")
	l.give(t, l.dir)
	r = l.types("launch", "claude", "--image", e.base, "--worktree", "fix", "--", "sh", "-c", "cat file; git branch --show-current; stat -c %u . file")
	if data, err := os.ReadFile(filepath.Join(l.dir, ".git/by")); err != nil || strings.Trim(string(data), "\n10") != "" {
		t.Errorf("the repository's programs did not run in the container, as who owns it: %q, %v", data, err)
	}
	if r.code != 0 || !strings.HasSuffix(r.stdout, "what is committed\nfix\n1000\n1000\n") {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the repository's ran on the host")
	}
}
