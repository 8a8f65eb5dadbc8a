package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/launch"
)

// TestMain is also the program that TestBecomes runs: what Launch becomes can't be seen from within.
func TestMain(m *testing.M) {
	if words := os.Getenv("LAUNCH_TEST"); words != "" {
		s := Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
		args := strings.Split(words, " ")
		if args[0] == "-C" {
			os.Exit(fault.Report(os.Stderr, Inside(context.Background(), s, args[1:])))
		}
		os.Exit(fault.Report(os.Stderr, parsed(s, args)))
	}
	os.Exit(m.Run())
}

// parsed runs a command line as the program for macOS and Windows does.
func parsed(s Streams, words []string) error {
	return Command(context.Background(), s, map[string]string{"HOME": os.Getenv("HOME")}, words)
}

// engineIn makes a directory with the script of ../testdata as docker, and one container.
func engineIn(t *testing.T, status string) string {
	t.Helper()
	script, err := os.ReadFile("../testdata/engine.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, err := filepath.Abs("../testdata/agent-init") // what an image has
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "agent-init")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TZ", "Etc/UTC")
	t.Setenv("HOME", "/home/ada")
	for name, data := range map[string]any{
		"docker": string(script), "images": "i\n", "containers": "c\n",
		"image-i.json": map[string]any{"Id": "i", "RepoTags": []string{"agent-claude:latest"}, "Config": map[string]any{"Labels": map[string]string{"org.agent-init.agent": "claude", "org.agent-init.base": "debian"}}},
		"container-c.json": map[string]any{
			"Id": strings.Repeat("c", 64), "Name": "/claude-src-4cbe", "Created": "2026-11-20T12:00:00Z", "State": map[string]any{"Status": status, "Running": status == "running"},
			"Config": map[string]any{"Image": "agent-claude:latest", "Labels": map[string]string{"org.agent-init.agent": "claude\x1b]0;x\a"}},
			"Mounts": []map[string]string{{"Type": "bind", "Source": "/src", "Destination": "/workspace"}},
		},
	} {
		text, ok := data.(string)
		if !ok {
			b, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestListed(t *testing.T) {
	engineIn(t, "running")
	var out bytes.Buffer
	if err := parsed(Streams{In: os.Stdin, Out: &out}, []string{"--list", "--json"}); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "list.golden.json", out.Bytes())
	out.Reset()
	if err := parsed(Streams{In: os.Stdin, Out: &out}, []string{"--list"}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "NAME ") || !strings.Contains(got, "claude-src-4cbe") || !strings.Contains(got, "claude?]0;x?") || strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
}

// TestScreens: a list fits each terminal, and no label of an image draws on it.
func TestScreens(t *testing.T) {
	hours := func(n int) time.Time { return time.Now().Add(-time.Duration(n) * time.Hour) }
	golden.Screens(t, "list.screens.txt", "  ", func(w io.Writer) error {
		return show(w, []launch.Container{
			{Name: "claude-app-9cc2", Agent: "claude", Status: "running", Created: hours(3), Dir: "/home/ada/app"},
			{Name: "codex-a-repository-with-a-long-name-fix-login-77aa", Agent: "codex", Status: "exited", Created: hours(50), Dir: "/home/ada/src/a-repository-with-a-long-name-fix-login"},
			{Name: "x", Agent: "\x1b]0;title\a\x1b[2J\u202eedualc", Status: "running\nNAME", Created: hours(1)},
		})
	})
}

// TestBecomes runs each command line in a process of its own, and looks at what the engine was asked to do.
func TestBecomes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ words, status, calls, says string }{
		{"--attach claude-src", "running", "exec -i --user=0:0 claude-src-4cbe /usr/local/bin/agent-init attach", ""},
		{"--attach", "running", "exec -i --user=0:0 claude-src-4cbe /usr/local/bin/agent-init attach", ""},
		{"--attach", "exited", "", "no container of an agent runs"},
		{"--attach other", "running", "", `there is no container "other"`},
		{"--stop claude-src-4cbe", "running", "stop claude-src-4cbe", "claude-src-4cbe has ended"},
		{"--stop", "running", "", "--stop: say which container"},
		{"-C claude-src log -f", "running", "exec -i --user=0:0 claude-src-4cbe /usr/local/bin/agent-init log -f", ""},
		{"-C claude-src", "running", "", "say which container, and which command"},
		{"claude /opt -- ls -l", "running", "ls -l", ""},
		{"claude --detach /opt", "running", "run -d --rm --name=claude-opt-", "is started: agent-init launch --attach claude-opt-"},
		{"claude a b", "running", "", `"b" is one argument too many`},
		{"--list --stop x", "running", "", "contradict each other"},
		{"--attach --allow x.example claude", "running", "", "take no options of a start"},
		{"--list claude", "running", "", `"claude" is one argument too many`},
	} {
		t.Run(c.words, func(t *testing.T) {
			dir := engineIn(t, c.status)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "LAUNCH_TEST="+c.words)
			said, err := cmd.CombinedOutput()
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if got := strings.ReplaceAll(string(calls), "\n", " "); !strings.Contains(got, c.calls) || (got == "") != (c.calls == "") {
				t.Errorf("asked %q, want %q; %v: %s", got, c.calls, err, said)
			}
			if !strings.Contains(string(said), c.says) || (err != nil) != (c.calls == "") {
				t.Errorf("%v: said %q, want %q", err, said, c.says)
			}
		})
	}
}

// TestTwoEngines: an engine that does not answer is told of where it may have what is looked for, and "-C" finds a
// container of whichever engine has it.
func TestTwoEngines(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const dead = "#!/bin/sh\necho 'permission denied' >&2; exit 1\n"
	const empty = "#!/bin/sh\n"
	for _, c := range []struct{ docker, podmans, words, want string }{
		{dead, "exited", "-C x log", "start the other engine, or see that you may ask it (docker ps: permission denied)"},
		{dead, "exited", "gemini /opt", "start the other engine, or see that you may ask it (docker ps: permission denied)"},
		{empty, "exited", "gemini /opt", "build it (make image-gemini)"},
		{empty, "running", "-C claude-src log", ""},
	} {
		dir := engineIn(t, c.podmans)
		if err := os.Rename(filepath.Join(dir, "docker"), filepath.Join(dir, "podman")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(c.docker), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "LAUNCH_TEST="+c.words)
		said, err := cmd.CombinedOutput()
		if !strings.Contains(string(said), c.want) || (err == nil) != (c.want == "") {
			t.Errorf("%s: %v: %s, want %q", c.words, err, said, c.want)
		}
		if calls, _ := os.ReadFile(filepath.Join(dir, "calls")); (len(calls) > 0) != (c.want == "") {
			t.Errorf("%s: podman was asked %q", c.words, calls)
		}
	}
}

// TestHereAlready: a name that is taken is neither started again nor taken away.
func TestHereAlready(t *testing.T) {
	for status, want := range map[string]string{"running": "runs here already", "exited": "is there, and has ended"} {
		dir := engineIn(t, status)
		src := filepath.Join(t.TempDir(), "src")
		if err := os.Mkdir(src, 0o755); err != nil {
			t.Fatal(err)
		}
		var printed bytes.Buffer
		if err := parsed(Streams{In: os.Stdin, Out: &printed}, []string{"claude", src, "--print"}); err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(printed.String(), "--name=")
		name = strings.Fields(name)[0]
		data, err := os.ReadFile(filepath.Join(dir, "container-c.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "container-c.json"), bytes.ReplaceAll(data, []byte("claude-src-4cbe"), []byte(name)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := parsed(Streams{In: os.Stdin, Out: io.Discard, Err: io.Discard}, []string{"claude", src, "--detach"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", status, err)
		}
		if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err == nil {
			t.Errorf("%s: asked %s", status, calls)
		}
	}
}

// TestComesBack: who types the same words again on a terminal gets to the agent that runs there, also in a worktree. With
// options that it can't have any more, they are told.
func TestComesBack(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"claude SRC": "exec -it", "claude SRC --worktree fix": "exec -it", "claude SRC --env A=b": "", "claude SRC --worktree fix --allow x.example": "",
	} {
		dir := engineIn(t, "running")
		src := filepath.Join(t.TempDir(), "src")
		for _, args := range [][]string{{"init", "-q", src}, {"-C", src, "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "one"}} {
			if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
				t.Fatalf("git %q: %v\n%s", args, err, out)
			}
		}
		words = strings.ReplaceAll(words, "SRC", src)
		var printed bytes.Buffer
		if err := parsed(Streams{In: os.Stdin, Out: &printed}, append(strings.Split(words, " "), "--print")); err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(printed.String(), "--name=")
		data, err := os.ReadFile(filepath.Join(dir, "container-c.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "container-c.json"), bytes.ReplaceAll(data, []byte("claude-src-4cbe"), []byte(strings.Fields(name)[0])), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "LAUNCH_TEST="+words)
		f, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(f) // which ends with an error where a terminal does
		f.Close()
		err = cmd.Wait()
		calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
		got := strings.ReplaceAll(string(calls), "\n", " ")
		if !strings.Contains(got, want) || (got == "") != (want == "") || (err == nil) != (want != "") {
			t.Errorf("%s: asked %q, want %q; %v: %s", words, got, want, err, said)
		}
		if want == "" && !strings.Contains(string(said), "runs here already") {
			t.Errorf("%s: %s", words, said)
		}
	}
}

// TestEndsAtItsStart: a container in the background that does not come up is an error.
func TestEndsAtItsStart(t *testing.T) {
	dir := engineIn(t, "running")
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := parsed(Streams{In: os.Stdin, Out: io.Discard, Err: io.Discard}, []string{"claude", t.TempDir(), "--detach"}); err == nil || !strings.Contains(err.Error(), "did not come up") {
		t.Error(err)
	}
}
