package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestJudgePath: what comes before agent-init on PATH is root's.
func TestJudgePath(t *testing.T) {
	mustrun.Root(t)
	home := t.TempDir()
	ours, empty, everyones, agents := filepath.Join(home, "ours"), filepath.Join(home, "empty"), filepath.Join(home, "everyones"), filepath.Join(home, "agents")
	for _, err := range []error{
		os.Mkdir(ours, 0o755), os.Mkdir(empty, 0o755), os.Mkdir(everyones, 0o755), os.Chmod(everyones, 0o777|os.ModeSticky),
		os.Mkdir(agents, 0o755), os.Chown(agents, 1000, 1000), os.WriteFile(filepath.Join(ours, fault.Program), nil, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		ours:                                   "",
		empty + ":" + ours:                     "",
		"/nowhere/at/all:" + ours:              "",
		ours + ":" + everyones + ":" + agents:  "",
		everyones + ":" + ours:                 "mode 1777",
		agents + ":" + ours:                    "belongs to uid 1000",
		agents + "/later:" + ours:              "belongs to uid 1000",
		empty + ":bin:" + ours:                 `"bin"`,
		empty + "::" + ours:                    `""`,
		empty + ":" + agents:                   "belongs to uid 1000", // an agent-init of the agent's would be the only one
		empty + ":" + everyones + "/x:" + ours: "mode 1777",
	} {
		err := judgePath(path)
		var f *fault.Fault
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", path, err)
		case want != "" && (!errors.As(err, &f) || f.Code != fault.Policy || !strings.Contains(err.Error(), want) || f.Remedy != PathRemedy):
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestContainerPath reads the PATH that a process was started with, where its
// directories are the same as ours.
func TestContainerPath(t *testing.T) {
	if got := containerPath("/proc/self"); got != os.Getenv("PATH") {
		t.Errorf("%q", got)
	}
	proc := t.TempDir()
	if err := errors.Join(os.Mkdir(proc+"/root", 0o755), os.WriteFile(proc+"/environ", []byte("PATH=/x\x00"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if got := containerPath(proc); got != "" {
		t.Errorf("of another root: %q", got)
	}
}
