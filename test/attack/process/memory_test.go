package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// oomScore is by how much a process counts as larger than it is, where memory is
// short.
func oomScore(p rig.Inmate, t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.Host))
	rig.Must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	rig.Must(t, err)
	return n
}

// oomKills is how often memory was short in a control group of "memory".
func oomKills(group string) int {
	for _, file := range []string{"memory.events", "memory.oom_control"} {
		data, _ := os.ReadFile(filepath.Join(group, file))
		for line := range strings.Lines(string(data)) {
			if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
				kills, _ := strconv.Atoi(strings.TrimSpace(n))
				return kills
			}
		}
	}
	return 0
}

// TestOutOfMemoryTakesTheAgent: the kernel takes the largest process where memory is short.
// An agent of hundreds of small ones does not have it take ours.
func TestOutOfMemoryTakesTheAgent(t *testing.T) {
	lab.Require(t)
	// Each holds less than the keeper does.
	const small = `i=0; while [ $i -lt 400 ]; do sh -c 'x=$(head -c 500000 /dev/zero | tr "\\0" x); sleep 1000 & wait' & i=$((i+1)); done; wait`
	l := rig.NewLab(t)
	args := rig.OnDemand(small)
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, append([]string{"agent-init", "run", "--session", "always"}, args[2:]...)...)
	w.Ready()
	guard, keeper := w.Guard(), w.Keeper()
	find := func(who string, is func(rig.Inmate) bool) (found rig.Inmate) {
		t.Helper()
		if !rig.Eventually(time.Minute, func() bool {
			for _, p := range rig.Inmates(t, w.Agent) {
				if is(p) {
					found = p
					return true
				}
			}
			return false
		}) {
			t.Fatalf("no %s", who)
		}
		return found
	}
	agent := find("agent", func(p rig.Inmate) bool { return p.Uid == lab.AgentUID && strings.HasPrefix(p.Args, "sh -c") })
	server := find("session server", func(p rig.Inmate) bool { return strings.HasSuffix(p.Args, "__sessions") })
	find("parent of the agent that goes no earlier than the session server", func(p rig.Inmate) bool {
		return strings.Contains(p.Args, "__parent") && oomScore(p, t) == oomScore(server, t)
	})
	order := []int{oomScore(keeper, t), oomScore(guard, t), oomScore(server, t), oomScore(agent, t)}
	for i := range order[1:] {
		if order[i+1] <= order[i] {
			t.Errorf("keeper, guard, session server and agent go in the order of %v", order)
		}
	}
	group := w.Limit("memory", 128<<20)
	w.Demand(true)
	// A process that waits for memory may hold up who reads its command line for minutes: only pids are looked at.
	taken := func(p rig.Inmate) bool { _, err := os.Stat(fmt.Sprintf("/proc/%d", p.Host)); return err != nil }
	rig.Eventually(0, func() bool { return oomKills(group) >= 20 || taken(keeper) || taken(guard) || taken(server) })
	if taken(keeper) {
		t.Fatalf("the keeper was taken: %s", w.Agent.Wait(0))
	}
	if taken(guard) {
		t.Error("the guard was taken")
	}
	if taken(server) {
		t.Error("the session server was taken")
	}
	if oomKills(group) < 20 {
		t.Errorf("memory was short %d times", oomKills(group))
	}
	t.Logf("memory was short %d times", oomKills(group))
}

// TestOutOfMemoryOrderInEachMode: the order is the same in the modes that don't start the agent, and
// for what exec starts there.
func TestOutOfMemoryOrderInEachMode(t *testing.T) {
	lab.Require(t)
	for _, mode := range []string{"up", "sidecar"} {
		t.Run(mode, func(t *testing.T) {
			l := rig.NewLab(t)
			var w *rig.World
			if mode == "up" {
				w = &rig.World{T: t, Lab: l, Box: l.NewBox(rig.WithBackend(lab.BoxOptions{Binary: lab.Binary(t)}))}
				w.Agent = w.Box.Start(lab.Cmd{Args: []string{"sleep", "infinity"}})
				if r := w.Root("agent-init", "up"); r.Code != 0 {
					t.Fatal(r)
				}
			} else {
				w = rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "sidecar")
			}
			w.Ready()
			own := oomScore(w.Keeper(), t)
			if g := oomScore(w.Guard(), t); g <= own {
				t.Errorf("the keeper goes before the guard: %d, %d", own, g)
			}
			r := w.Root("agent-init", "exec", "--", "cat", "/proc/self/oom_score_adj")
			if n, err := strconv.Atoi(strings.TrimSpace(r.Stdout)); err != nil || n < own+300 {
				t.Errorf("what exec starts is at %s, the keeper at %d", r, own)
			}
		})
	}
}
