package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestLogHasRoomWhenStarved: the log is where the agent can fill the file system. What it
// is refused then has a line all the same, from room that was held back. When that
// is used up, the status says so at once.
func TestLogHasRoomWhenStarved(t *testing.T) {
	lab.Require(t)
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{ReadOnly: true, Files: []lab.File{rig.Settings("log:\n  max_size: 256KiB\n")}})
	rig.Must(t, w.Box.Remount("/dev/shm", "size=1m"))
	s, _ := w.Status()
	if !strings.Contains(fmt.Sprint(s["audit"]), "/dev/shm/") {
		t.Fatalf("proves nothing, the agent can't write where the log is: %v", s["audit"])
	}
	fill := func() {
		t.Helper()
		w.Script("dd if=/dev/zero of=/dev/shm/fill bs=64k 2>/dev/null; dd if=/dev/zero bs=1 count=4096 2>/dev/null >>/dev/shm/fill; ls -l /dev/shm/fill")
		if r := w.Root("agent-init", "exec", "--", "sh", "-c", "echo more >/dev/shm/more"); r.Code == 0 {
			t.Fatal("proves nothing, there is room")
		}
	}
	fill()
	for i := range 100 {
		w.Poke("dns", "8.8.8.8:53", fmt.Sprintf("full%d.evil.test", i), "A")
	}
	recorded := func() (n int) {
		data, err := w.Box.ReadFile("/dev/shm/agent-init/log/audit.jsonl")
		rig.Must(t, err)
		for i := range 100 {
			if strings.Contains(string(data), fmt.Sprintf(`"full%d.evil.test"`, i)) {
				n++
			}
		}
		return n
	}
	if !rig.Eventually(20*time.Second, func() bool { return recorded() == 100 }) {
		t.Errorf("%d of 100 refusals have a line", recorded())
	}
	// The rest of the room, until a line is lost: from then on the status has to say so.
	lost := func() bool {
		s, _ := w.Status()
		return strings.Contains(fmt.Sprint(s["why"]), "events are being lost")
	}
	if !rig.Eventually(2*time.Minute, func() bool {
		w.Poke("dns", "-n", "300", "-c", "4", "8.8.8.8:53", "more{n}.evil.test", "A")
		return lost()
	}) {
		t.Error("the status does not say that events are being lost")
	}
	w.Closed()
	w.Root("agent-init", "exec", "--", "rm", "/dev/shm/fill")
	w.Recovers("the agent had filled the disk")
}
