package attack

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// windows are the windows that the session lists.
func (w *world) windows() string {
	w.Helper()
	r := w.root("agent-init", "sessions")
	if r.Code != 0 {
		w.Fatal(r)
	}
	return r.Stdout
}

// TestKillEndsWhatResists: an agent that stops all that it can, on sight, and ignores
// what it may ignore, is ended all the same, by a root without CAP_KILL.
func TestKillEndsWhatResists(t *testing.T) {
	lab.Require(t)
	w := startIn(t, newLab(t), allowlist, lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.inSession()
	const resist = `trap "" HUP TERM; while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null`
	if r := w.root("agent-init", "new", "bad", "--", "sh", "-c", resist); r.Code != 0 {
		t.Fatal(r)
	}
	if !eventually(time.Minute, func() bool { // it is at work
		for _, p := range inmates(t, w.agent) {
			if p.args == "sleep infinity" && p.state == "T" {
				return true
			}
		}
		return false
	}) {
		t.Fatal("the agent stops nobody")
	}
	r := w.box.Exec(lab.Cmd{Args: []string{"agent-init", "kill", "bad"}, Timeout: lab.Patience})
	if left := w.windows(); r.Code != 0 || strings.Contains(left, "bad") {
		t.Errorf("kill: %s\nwindows: %s", r, left)
	}
	if r := w.root("agent-init", "kill", "bad"); r.Code != 1 {
		t.Errorf("there is none any more: %s", r)
	}
}

// TestKillEndsForkBomb: nothing has to be started to end an agent that has left no
// room for a process.
func TestKillEndsForkBomb(t *testing.T) {
	lab.Require(t)
	w := startIn(t, newLab(t), allowlist, lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.inSession()
	w.guard()
	w.limit("pids", 100)
	const bomb = `trap "" HUP TERM; while :; do (while :; do sleep 1000 & done) 2>/dev/null; done`
	if r := w.root("agent-init", "new", "bomb", "--", "sh", "-c", bomb); r.Code != 0 {
		t.Fatal(r)
	}
	sleepers := func() (n int) {
		for _, p := range inmates(t, w.agent) {
			if p.args == "sleep 1000" {
				n++
			}
		}
		return n
	}
	if !eventually(time.Minute, func() bool { return sleepers() > 20 }) {
		t.Fatalf("%d processes", sleepers())
	}
	r := w.box.Exec(lab.Cmd{Args: []string{"agent-init", "kill", "bomb"}, Timeout: lab.Patience})
	if left := w.windows(); r.Code != 0 || strings.Contains(left, "bomb") {
		t.Errorf("kill: %s\nwindows: %s", r, left)
	}
	if !eventually(time.Minute, func() bool { return sleepers() == 0 }) {
		t.Errorf("%d processes are left", sleepers())
	}
}
