package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// verified is what log --verify says, as root and as the agent alike.
func verified(w *rig.World, args ...string) (whole bool, kinds []string) {
	w.Helper()
	args = append([]string{"agent-init", "log", "--verify", "--json"}, args...)
	for _, r := range []lab.Result{w.Root(args...), w.Launch(args...).Wait(0)} {
		var v struct {
			Whole    bool
			Findings []struct{ Kind string }
		}
		if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil || v.Whole != (r.Code == 0) {
			w.Fatalf("%v: %s", err, r)
		}
		whole, kinds = v.Whole, nil
		for _, f := range v.Findings {
			kinds = append(kinds, f.Kind)
		}
	}
	return whole, kinds
}

// TestLogVerify: the log is whole while it is written, and after the keeper was killed and follows itself. What root
// takes out of it is found; what root takes from its end while nobody writes it is said by the next keeper.
func TestLogVerify(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, lab.New(t, lab.Options{}), rig.Allowlist, lab.BoxOptions{Files: []lab.File{rig.Settings("log:\n  max_size: 64KiB\n")}}, "sleep", "infinity")
	up := func() {
		t.Helper()
		if r := w.Root("agent-init", "up"); r.Code != 0 {
			t.Fatal(r)
		}
	}
	down := func() {
		t.Helper()
		pid := w.Keeper().Pid
		if r := w.Root("sh", "-c", fmt.Sprintf("kill -9 %d", pid)); r.Code != 0 || pid < 2 {
			t.Fatal(pid, r)
		}
		if !rig.Eventually(lab.Patience, func() bool {
			return w.Root("sh", "-c", fmt.Sprintf("! grep -q '^State:.[^Z]' /proc/%d/status 2>/dev/null", pid)).Code == 0
		}) {
			t.Fatal("the keeper does not end")
		}
	}
	up()
	for i := range 2 {
		w.Poke("dns", "-n", "50", "8.8.8.8:53", fmt.Sprintf("run%d-{n}.evil.test", i), "A")
		if whole, kinds := verified(w); !whole {
			t.Errorf("before anybody did anything: %q", kinds)
		}
		down()
		up()
	}
	s, _ := w.Status()
	a, _ := s["audit"].(map[string]any)
	h, _ := a["head"].(map[string]any)
	head := fmt.Sprintf("%.0f:%s", h["seq"], h["hash"])
	if whole, kinds := verified(w, "--head", head); !whole {
		t.Errorf("after two keepers were killed, with the head %s: %q", head, kinds)
	}
	if metrics := w.Root("agent-init", "metrics").Stdout; !strings.Contains(metrics, "\nagent_init_audit_head_hash{digits=\"13-24\"} ") {
		t.Errorf("no head in the metrics:\n%s", metrics)
	}
	down()
	if r := w.Root("sh", "-c", "cd /var/log/agent-init && head -n -1 audit.jsonl >/tmp/cut && cat /tmp/cut >audit.jsonl"); r.Code != 0 {
		t.Fatal(r)
	}
	if whole, kinds := verified(w); whole || !slices.Contains(kinds, "missing") {
		t.Errorf("its last line is gone: %v, %q", whole, kinds)
	}
	up()
	if whole, kinds := verified(w); whole || !slices.Contains(kinds, "missing") || !slices.Contains(kinds, "noticed") {
		t.Errorf("its last line is gone, and a keeper goes on: %v, %q", whole, kinds)
	}
	w.Audited("that the log was changed", func(e rig.Event) bool {
		return e.Kind == "guard" && e.Verdict == "fault" && strings.HasPrefix(e.Reason, "the audit log was changed by somebody else: its last line was")
	})
}

// TestLogShared: two containers have the same volume for their logs. The second one is not started, and the log of the
// first stays whole. Once that has ended, the second one goes on in it.
func TestLogShared(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	volume := filepath.Join(t.TempDir(), "log")
	rig.Must(t, os.Mkdir(volume, 0o755))
	opts := lab.BoxOptions{Binds: []lab.Bind{{Source: volume, Target: "/var/log/agent-init", Writable: true}}}
	first := rig.StartIn(t, l, rig.Allowlist, opts, "agent-init", "run", "--", "sleep", "infinity")
	first.Ready()
	second := rig.StartIn(t, l, rig.Allowlist, opts, "agent-init", "run", "--", "true").Agent.Wait(lab.Patience)
	if rig.Refused(t, second, 71); !strings.Contains(second.Stderr, "give each container a volume of its own at /var/log/agent-init") {
		t.Errorf("no remedy: %s", second)
	}
	if whole, kinds := verified(first); !whole {
		t.Errorf("the log of the first: %q", kinds)
	}
	rig.Must(t, first.Agent.Signal(unix.SIGKILL))
	first.Agent.Wait(lab.Patience)
	if r := rig.StartIn(t, l, rig.Allowlist, opts, "agent-init", "run", "--", "true").Agent.Wait(lab.Patience); r.Code != 0 {
		t.Errorf("the other has ended: %s", r)
	}
}
