package rig

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// LabCmd is a command of root's in a box.
func LabCmd(args ...string) lab.Cmd { return lab.Cmd{Args: args} }

// Limit puts all of a box into a control group of its own, of either version
// (cgroups(7)), and sets a limit of it: "memory", "pids" or "cpu"
// (microseconds of each 100 milliseconds). What is started in the
// box later has to be put there too.
func (w *World) Limit(controller string, value int) (group string) {
	w.Helper()
	// The root of version 2 says which controllers it has.
	const top = "/sys/fs/cgroup"
	dir, file := filepath.Join(top, controller), map[string]string{"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}[controller]
	if _, err := os.Stat(filepath.Join(top, "cgroup.controllers")); err == nil {
		dir, file = top, controller+".max"
		Must(w.T, os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+"+controller), 0))
	}
	dir, err := os.MkdirTemp(dir, "agent-init-lab-")
	Must(w.T, err)
	w.Cleanup(func() {
		w.Box.Kill()
		if !Eventually(10*time.Second, func() bool { return unix.Rmdir(dir) == nil }) {
			w.Errorf("%s can't be removed", dir)
		}
	})
	Must(w.T, os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(value)), 0))
	w.Take(dir)
	return dir
}

// Take puts all processes of a box into a control group: twice, for what was
// started meanwhile.
func (w *World) Take(dir string) {
	w.Helper()
	for range 2 {
		for _, p := range Inmates(w.T, w.Agent) {
			err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.Host)), 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				w.Fatal(err)
			}
		}
	}
}

// OnDemand is an agent that runs a script for as long as a file says so, as a child
// of the container's, within its limits.
func OnDemand(script string) []string {
	return []string{"agent-init", "run", "--", "sh", "-c", "while :; do if [ -e /tmp/go ]; then " + script + "; fi; sleep 0.1; done >/dev/null 2>&1"}
}

func (w *World) Demand(on bool) {
	w.Helper()
	if on {
		Must(w.T, w.Box.WriteFile("/tmp/go", nil, 0o644))
	} else if r := w.Root("rm", "-f", "/tmp/go"); r.Code != 0 {
		w.Fatal(r)
	}
}

// Restarts is how often the keeper had to start another guard.
func (w *World) Restarts() int {
	w.Helper()
	s, _ := w.Status()
	g, _ := s["guard"].(map[string]any)
	n, _ := g["restarts"].(float64)
	return int(n)
}

// Reasons are the reasons of all events of a kind.
func (w *World) Reasons(kind string) string {
	w.Helper()
	var out []string
	for _, e := range w.Audit(func(e Event) bool { return e.Kind == kind }) {
		out = append(out, e.Verdict+" "+e.Reason)
	}
	return strings.Join(out, "\n")
}

// KeepUp confines a box by agent-init up, where the table has no owner.
func KeepUp(t *testing.T, list string, opts lab.BoxOptions) *World {
	t.Helper()
	lab.Require(t)
	w := StartIn(t, lab.New(t, lab.Options{}), list, opts, "sleep", "infinity")
	if r := w.Root("agent-init", "up"); r.Code != 0 {
		t.Fatalf("up: %s", r)
	}
	return w
}
