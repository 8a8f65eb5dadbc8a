package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRunSaysWhatFailed: test/run.sh ends with the words of each test that failed, and keeps them and all else.
func TestRunSaysWhatFailed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"run.sh", "report.awk", "words.awk"} {
		data, err := os.ReadFile(filepath.Join("../../test", name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, "test", name), string(data))
	}
	put(t, filepath.Join(dir, "test/engine.sh"), "#!/bin/sh\n")
	put(t, filepath.Join(dir, "go.mod"), "module example.test/agent-init\n")
	put(t, filepath.Join(dir, "failing"), `=== RUN   TestA
=== PAUSE TestA
=== RUN   TestB
=== RUN   TestB/one
    b_test.go:1: what B said
--- FAIL: TestB (0.00s)
    --- FAIL: TestB/one (0.00s)
=== CONT  TestA
    a_test.go:3: what A said
--- FAIL: TestA (1.00s)
FAIL
FAIL	example.test/agent-init/test/attack	1.0s
=== RUN   TestC
    c_test.go:3: what C said
--- PASS: TestC (0.00s)
PASS
ok  	example.test/agent-init/pkg/x	0.1s
`)
	put(t, filepath.Join(dir, "Makefile"), `build test-prepare:; @:
test-attack:; @cat failing; exit 1
test-race:; @grep -h SigIgn /proc/self/status; printf -- '--- PASS: TestD (0.00s)\n'
test-odd:; @echo leftovers.sh: it was touched; exit 1
`)
	cmd := exec.Command("sh", "-c", `trap "" HUP INT; exec test/run.sh 2 test-attack test-race test-odd`)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "AGENT_INIT_TEST_LOGS=", "MAKEFLAGS=")
	said, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("a test failed, and it ended with 0")
	}
	kept := regexp.MustCompile(`all that was printed: (\S+)/\*\.log; this again: (\S+/failures)\n`).FindStringSubmatch(string(said))
	if kept == nil {
		t.Fatalf("it does not say what is kept:\n%s", said)
	}
	again, err := os.ReadFile(kept[2])
	if err != nil || !strings.HasSuffix(string(said), "\n"+string(again)) {
		t.Errorf("%v: what is kept is not what it ends with:\n%s", err, again)
	}
	for _, want := range []string{
		"== FAILED: test-attack TestB/one\n    b_test.go:1: what B said\nalone: ", `go test -C ./test/attack -count=1 -v -run '^TestB$/^one$' .`,
		"== FAILED: test-attack TestA\n    a_test.go:3: what A said\nalone: ", `go test -C ./test/attack -count=1 -v -run '^TestA$' .`,
		"leftovers.sh: it was touched", "alone: make test-odd", "test-attack FAILED; TestB (0.00s); TestB/one (0.00s); TestA (1.00s)\n",
	} {
		if !strings.Contains(string(again), want) {
			t.Errorf("it does not say %q:\n%s", want, again)
		}
	}
	if strings.Contains(string(again), "what C said") {
		t.Errorf("what passed is among what failed:\n%s", again)
	}
	if log, err := os.ReadFile(filepath.Join(kept[1], "test-race.log")); err != nil || !regexp.MustCompile(`SigIgn:\t[0-9a-f]{15}[048c]\n`).Match(log) {
		t.Errorf("tests are begun with signals ignored: %v, %s", err, log)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
