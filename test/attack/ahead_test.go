package attack

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

const waitingStage = "agent-init __stage" // as it was executed, of a process that is told nothing yet

// TestLabAheadKilled: the process that waits to become the agent is killed. The agent is started all the same, as it is
// confined, and one that was told nothing has executed nothing.
func TestLabAheadKilled(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetLatency(500 * time.Millisecond) // which the start waits for
	w := startIn(t, l, "ok.test required\n", lab.BoxOptions{}, "agent-init", "run", "--", "sh", "-c", "grep CapBnd /proc/self/status; id -u")
	p := w.inmateOf(waitingStage)
	if p.signal(t, unix.SIGKILL); w.agent.Stdout() != "" {
		t.Errorf("proves nothing, the agent had started already: %s", w.agent.Stdout())
	}
	r := w.agent.Wait(lab.Patience)
	if f := strings.Fields(r.Stdout); r.Code != 0 || len(f) != 3 || f[1] != "0000000000000000" || f[2] == "0" {
		t.Errorf("killed ahead of the start: %s", r)
	}
	if !strings.Contains(r.Stderr, "had to be started again") {
		t.Errorf("nothing is said of it: %s", r)
	}
}

// TestLabAheadForgotten: of a start that fails, nothing is left that waits, and it says one thing.
func TestLabAheadForgotten(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetLatency(500 * time.Millisecond)
	w := startIn(t, l, "ok.test\nnowhere.test required\n", lab.BoxOptions{}, "sh", "-c", "agent-init run -- echo started; echo ended $?; exec sleep infinity")
	p := w.inmateOf(waitingStage)
	if !w.agent.WaitOutput("ended 70", lab.Patience) {
		t.Fatalf("it has not failed: %s%s", w.agent.Stdout(), w.agent.Stderr())
	}
	if !eventually(lab.Patience, func() bool { _, there := readInmate(p.host); return !there }) {
		t.Errorf("%v is still there", p)
	}
	if s := w.agent.Stdout() + w.agent.Stderr(); w.agent.Stdout() != "ended 70\n" || strings.Contains(s, "stage") {
		t.Errorf("it said: %s", s)
	}
}
