package privdrop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

func TestKernelHarden(t *testing.T) {
	mustrun.Root(t)
	binary := filepath.Join(t.TempDir(), "harden")
	build := exec.Command("go", "build", "-o", binary, "../../internal/lab/cmd/harden")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// WAKE_ALARM is asked for, but not there to be kept.
	out, err := exec.Command("setpriv", "--bounding-set=-wake_alarm", "--inh-caps=+net_raw", "--ambient-caps=+net_raw", "--", binary).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if lines[0] != "dumpable 0 <nil>" {
		t.Error(lines[0])
	}
	var threads int
	if _, err := fmt.Sscanf(lines[1], "threads %d", &threads); err != nil || threads < 5 {
		t.Errorf("%s, %v", lines[1], err)
	}
	want := map[string]string{
		"CapInh:": "0000000000000000", "CapPrm:": "0000000000000080", "CapEff:": "0000000000000080", "CapAmb:": "0000000000000000",
	}
	checked := 0
	for _, line := range lines[2:] {
		f := strings.Fields(line)
		if value, ok := want[f[0]]; ok {
			checked++
			if f[1] != value {
				t.Errorf("%s, want %s", line, value)
			}
		}
	}
	if checked != 4*threads {
		t.Errorf("%d lines of %d threads", checked, threads)
	}
}
