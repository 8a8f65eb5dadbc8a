package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

const shellScript = root + "/images/shell.bash"

// shellRig has a directory with a stand-in for agent-init, which says how it was called, and the script, to which the
// directory is where root's is.
func shellRig(t *testing.T) (dir, script string) {
	t.Helper()
	mustrun.Tool(t, "bash")
	text, err := os.ReadFile(shellScript)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	script = filepath.Join(dir, "shell.bash")
	if err := os.WriteFile(script, bytes.Replace(text, []byte("/usr/local/bin/agent-init"), []byte(`"$PLACE/agent-init"`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"agent-init": "#!/bin/sh\necho \"HINT $*\"\necho noise >&2\nexit 3\n",
		"curl":       "#!/bin/sh\nexit 6\n",
		"npm":        "#!/bin/sh\nreadlink /proc/$PPID/exe; exit 5\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir, script
}

// ranBy is what came of a bash with arguments, which reads shell.bash as the images have it. A login shell would have
// the machine's PATH, and run what it really has.
func ranBy(t *testing.T, env []string, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir, script := shellRig(t)
	cmd := exec.Command("bash", args...)
	cmd.Env = append([]string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "PLACE=" + dir, "BASH_ENV=" + script}, env...)
	cmd.Dir = dir
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte("curl; exit 6\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestShellHints: a command that bash has run is asked about when it has ended, and nothing else changes.
func TestShellHints(t *testing.T) {
	const hint = "HINT hint "
	for what, c := range map[string]struct {
		env     []string
		args    []string
		stdout  string
		code    int
		status  string // that the hint is asked for with, "" if it is not
		unheard string // what the standard error has not
	}{
		"one command that fetches":        {args: []string{"-c", "curl https://a.example"}, code: 6, status: "6 fetches"},
		"a pipe":                          {args: []string{"-c", "curl https://a.example | cat"}, status: "0 fetches"},
		"what follows a failure":          {args: []string{"-c", "curl -s x || echo failed"}, stdout: "failed\n", status: "0 fetches"},
		"errexit, nounset":                {args: []string{"-c", "set -eu; curl x; echo not here"}, code: 6, status: "6 fetches"},
		"xtrace":                          {args: []string{"-c", "set -x; curl x; exit 4"}, code: 4, status: "4 fetches", unheard: "agent_init"},
		"exit":                            {args: []string{"-c", "(exit 9); exit 7"}, code: 7, status: "7 other"},
		"no standard error":               {args: []string{"-c", "curl x 2>&-; exec 2>&-; exit 8"}, code: 8},
		"the name of a program":           {args: []string{"-c", "command -v curl >/dev/null && [ -x \"$(command -v curl)\" ] && type -t curl"}, stdout: "file\n", status: "0 fetches"},
		"a subshell":                      {args: []string{"-c", "(curl x); (exit 2)"}, code: 2, status: "2 fetches"},
		"its own trap":                    {args: []string{"-c", "trap 'echo mine' EXIT; true"}, stdout: "mine\n"},
		"becomes what it runs":            {args: []string{"-c", "sh -c 'exit 5'"}, code: 5},
		"becomes what it runs on":         {args: []string{"-c", "npm run dev"}, code: 5, stdout: ""},
		"a script":                        {args: []string{"script"}, code: 6},
		"off":                             {env: []string{"AGENT_HINTS=off"}, args: []string{"-c", "curl x; exit 6"}, code: 6},
		"POSIX mode":                      {args: []string{"--posix", "-c", "curl x; exit 6"}, code: 6},
		"an agent-init that there is not": {env: []string{"PATH=/usr/bin:/bin", "PLACE=/nonexistent"}, args: []string{"-c", "exit 6;"}, code: 6},
	} {
		t.Run(what, func(t *testing.T) {
			stdout, stderr, code := ranBy(t, c.env, "", c.args...)
			if what == "becomes what it runs on" { // its parent is no bash
				if strings.Contains(stdout, "bash") {
					t.Errorf("npm has a shell that waits for it: %q", stdout)
				}
				stdout = ""
			}
			if stdout != c.stdout || code != c.code {
				t.Errorf("exit %d, prints %q; want %d, %q: %s", code, stdout, c.code, c.stdout, stderr)
			}
			asked := strings.Contains(stderr, hint)
			if asked != (c.status != "") || asked && !strings.Contains(stderr, " "+c.status+"\n") || strings.Contains(stderr, "noise") {
				t.Errorf("a hint for status %q: %q", c.status, stderr)
			}
			if c.unheard != "" && strings.Contains(stderr, c.unheard) {
				t.Errorf("%q is heard: %q", c.unheard, stderr)
			}
		})
	}
}

// TestShellOfRoot: root's shells run no agent-init that stands before the real one in PATH, which may name directories of
// the workspace.
func TestShellOfRoot(t *testing.T) {
	mustrun.Root(t)
	script, err := filepath.Abs(shellScript)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-c", "curl x; exit 6"}, {"--rcfile", script, "-i"}} {
		if _, stderr, _ := ranBy(t, []string{"BASH_ENV=" + script}, "curl x\nexit 6\n", args...); strings.Contains(stderr, "HINT") {
			t.Errorf("%q: root ran what was first in PATH: %s", args, stderr)
		}
	}
}

// TestShellPrompt: at a prompt, what failed is asked about, once for each line that was typed.
func TestShellPrompt(t *testing.T) {
	_, script := shellRig(t)
	for what, c := range map[string]struct {
		typed string
		hints int
	}{
		"nothing failed":     {"true\necho a | cat\n", 0},
		"one failed":         {"curl x\ntrue\n", 1},
		"a part of a pipe":   {"curl x | cat\n", 1},
		"twice, and a third": {"curl x\nfalse\ntrue\n", 2},
	} {
		stdout, stderr, code := ranBy(t, nil, c.typed+"echo ended $?\nexit 4\n", "--rcfile", script, "-i")
		if got := strings.Count(stderr, "HINT"); got != c.hints || code != 4 || !strings.Contains(stdout, "ended ") {
			t.Errorf("%s: exit %d, %d hints: %q %q", what, code, got, stdout, stderr)
		}
	}
	if stdout, _, _ := ranBy(t, nil, "curl x\necho $?\n", "--rcfile", script, "-i"); stdout != "6\n" {
		t.Errorf("what a command exits with is lost: %q", stdout)
	}
	if _, stderr, code := ranBy(t, nil, "", "--rcfile", script, "-i", "-c", "curl x; exit 3"); strings.Count(stderr, "HINT") != 1 || code != 3 {
		t.Errorf("a command of an interactive shell: exit %d, %q", code, stderr)
	}
	if _, stderr, _ := ranBy(t, []string{"AGENT_HINTS=off"}, "curl x\n", "--rcfile", script, "-i"); strings.Contains(stderr, "HINT") {
		t.Errorf("it can't be turned off: %q", stderr)
	}
}
