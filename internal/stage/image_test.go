package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestLeaveImage: the pages of the program's code leave the process, and what they
// hold is there again when it is used.
func TestLeaveImage(t *testing.T) {
	before := imagePages(t)
	leaveImage()
	after := imagePages(t)
	if before < 1<<10 || after > before*3/4 {
		t.Errorf("%d KiB of the program were resident, and %d KiB still are", before, after)
	}
	if remedy := fault.ByHand.Capabilities("NET_ADMIN"); !strings.Contains(remedy, "--cap-add=NET_ADMIN") {
		t.Errorf("what the program's constants say is %q", remedy)
	}
	leaveImage()
}

// imagePages is how much of this program's read-only mappings is resident, in KiB
// (proc(5), smaps).
func imagePages(t *testing.T) (kib int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	ours := false
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 6 && strings.Contains(f[0], "-"):
			ours = f[5] == exe && !strings.Contains(f[1], "w")
		case len(f) == 6 || len(f) == 5 && strings.Contains(f[0], "-"):
			ours = false
		case f[0] == "Rss:" && ours:
			var n int
			if _, err := fmt.Sscan(f[1], &n); err != nil {
				t.Fatal(err)
			}
			kib += n
		}
	}
	return kib
}
