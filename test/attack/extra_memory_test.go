package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// oomScore is by how much a process counts as larger than it is, where memory is
// short.
func (p inmate) oomScore(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.host))
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	must(t, err)
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
	l := newLab(t)
	args := onDemand(small)
	w := startIn(t, l, allowlist, lab.BoxOptions{}, append([]string{"agent-init", "run", "--session", "always"}, args[2:]...)...)
	w.ready()
	guard, keeper := w.guard(), w.keeper()
	find := func(who string, is func(inmate) bool) (found inmate) {
		t.Helper()
		if !eventually(time.Minute, func() bool {
			for _, p := range inmates(t, w.agent) {
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
	agent := find("agent", func(p inmate) bool { return p.uid == lab.AgentUID && strings.HasPrefix(p.args, "sh -c") })
	server := find("session server", func(p inmate) bool { return strings.HasSuffix(p.args, "__sessions") })
	find("parent of the agent that goes no earlier than the session server", func(p inmate) bool {
		return strings.Contains(p.args, "__parent") && p.oomScore(t) == server.oomScore(t)
	})
	order := []int{keeper.oomScore(t), guard.oomScore(t), server.oomScore(t), agent.oomScore(t)}
	for i := range order[1:] {
		if order[i+1] <= order[i] {
			t.Errorf("keeper, guard, session server and agent go in the order of %v", order)
		}
	}
	group := w.limit("memory", 128<<20)
	w.demand(true)
	// To look at all processes may take longer than that.
	if !eventually(2*time.Minute, func() bool { return oomKills(group) >= 20 || guards(t, w.agent) == nil }) && oomKills(group) < 20 {
		t.Errorf("memory was short %d times", oomKills(group))
	}
	select {
	case <-w.agent.Done():
		t.Fatalf("the keeper was taken: %s", w.agent.Wait(time.Minute))
	default:
	}
	if now := w.guard(); now.host != guard.host {
		t.Error("the guard was taken")
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", server.host)); err != nil {
		t.Error("the session server was taken")
	}
	t.Logf("memory was short %d times", oomKills(group))
}

// TestOutOfMemoryOrderInEachMode: the order is the same in the modes that don't start the agent, and
// for what exec starts there.
func TestOutOfMemoryOrderInEachMode(t *testing.T) {
	lab.Require(t)
	for _, mode := range []string{"up", "sidecar"} {
		t.Run(mode, func(t *testing.T) {
			l := newLab(t)
			var w *world
			if mode == "up" {
				w = &world{T: t, lab: l, box: l.NewBox(withBackend(lab.BoxOptions{Binary: lab.Binary(t)}))}
				w.agent = w.box.Start(lab.Cmd{Args: []string{"sleep", "infinity"}})
				if r := w.root("agent-init", "up"); r.Code != 0 {
					t.Fatal(r)
				}
			} else {
				w = startIn(t, l, allowlist, lab.BoxOptions{}, "agent-init", "sidecar")
			}
			w.ready()
			own := w.keeper().oomScore(t)
			if g := w.guard().oomScore(t); g <= own {
				t.Errorf("the keeper goes before the guard: %d, %d", own, g)
			}
			r := w.root("agent-init", "exec", "--", "cat", "/proc/self/oom_score_adj")
			if n, err := strconv.Atoi(strings.TrimSpace(r.Stdout)); err != nil || n < own+300 {
				t.Errorf("what exec starts is at %s, the keeper at %d", r, own)
			}
		})
	}
}
