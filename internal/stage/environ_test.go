package stage

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestForgetVariables: nothing of a variable is left in /proc/PID/environ, and the others are as they were.
func TestForgetVariables(t *testing.T) {
	if os.Getenv("FORGETTING") == "yes" {
		if err := ForgetVariables([]string{"SECRET", "NONE", "EMPTY"}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile("/proc/self/environ")
		if err != nil {
			t.Fatal(err)
		}
		if s := string(data); strings.Contains(s, "canary") || !strings.Contains(s, "\x00KEPT=kept\x00") || !strings.Contains(s, "SECRETS=others\x00") {
			t.Errorf("the block is %q", s)
		}
		if os.Getenv("SECRET") != "" || os.Getenv("KEPT") != "kept" || os.Getenv("LAST") != "last" {
			t.Errorf("the variables are %q", os.Environ())
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestForgetVariables$", "-test.v")
	cmd.Env = []string{"FORGETTING=yes", "SECRET=canary", "KEPT=kept", "EMPTY=", "SECRETS=others", "SECRET=canary-twice", "LAST=last"}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}
