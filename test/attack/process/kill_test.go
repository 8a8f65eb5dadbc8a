package process

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// windows are the windows that the session lists.
func windows(w *rig.World) string {
	w.Helper()
	r := w.Root("agent-init", "sessions")
	if r.Code != 0 {
		w.Fatal(r)
	}
	return r.Stdout
}

// TestKillEndsWhatResists: an agent that stops all that it can, on sight, and ignores
// what it may ignore, is ended all the same, by a root without CAP_KILL.
func TestKillEndsWhatResists(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, rig.NewLab(t), rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.InSession()
	in := func(state string) func() bool {
		return func() bool {
			for _, p := range rig.Inmates(t, w.Agent) {
				if p.Args == "sleep infinity" && (state == "" || p.State == state) {
					return true
				}
			}
			return false
		}
	}
	if !rig.Eventually(0, in("")) { // stopped before that, it would never be the agent's program
		t.Fatal("there is no agent")
	}
	const resist = `trap "" HUP TERM; while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null`
	if r := w.Root("agent-init", "new", "bad", "--", "sh", "-c", resist); r.Code != 0 {
		t.Fatal(r)
	}
	if !rig.Eventually(0, in("T")) {
		t.Fatal("the agent stops nobody")
	}
	r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "kill", "bad"}, Timeout: lab.Patience})
	if left := windows(w); r.Code != 0 || strings.Contains(left, "bad") {
		t.Errorf("kill: %s\nwindows: %s", r, left)
	}
	if r := w.Root("agent-init", "kill", "bad"); r.Code != 1 {
		t.Errorf("there is none any more: %s", r)
	}
}

// TestKillEndsForkBomb: nothing has to be started to end an agent that has left no
// room for a process.
func TestKillEndsForkBomb(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, rig.NewLab(t), rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.InSession()
	w.Guard()
	w.Limit("pids", 100)
	const bomb = `trap "" HUP TERM; while :; do (while :; do sleep 1000 & done) 2>/dev/null; done`
	if r := w.Root("agent-init", "new", "bomb", "--", "sh", "-c", bomb); r.Code != 0 {
		t.Fatal(r)
	}
	sleepers := func() (n int) {
		for _, p := range rig.Inmates(t, w.Agent) {
			if p.Args == "sleep 1000" {
				n++
			}
		}
		return n
	}
	if !rig.Eventually(time.Minute, func() bool { return sleepers() > 20 }) {
		t.Fatalf("%d processes", sleepers())
	}
	r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "kill", "bomb"}, Timeout: lab.Patience})
	if left := windows(w); r.Code != 0 || strings.Contains(left, "bomb") {
		t.Errorf("kill: %s\nwindows: %s", r, left)
	}
	if !rig.Eventually(time.Minute, func() bool { return sleepers() == 0 }) {
		t.Errorf("%d processes are left", sleepers())
	}
}
