package keeper

import (
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// publishAll writes what explain, suggest, grants and the agent read, for the
// first time or because it could not be written, and returns how many changes of
// the leases that holds.
func (k *keeper) publishAll() uint64 {
	k.reloading.Lock()
	defer k.reloading.Unlock()
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	k.publishPolicy(p)
	k.publishGrants()
	return k.publishLeases(^uint64(0))
}

// publishAgent writes how the agent is confined, for agent-init exec. Root
// alone can read it: the environment holds the agent's keys.
func (k *keeper) publishAgent() error {
	spec := k.agentSpec()
	spec.ParentPID = 0
	return k.dir.Write(state.AgentFile, 0o600, state.Confined{Spec: spec, Clipboard: k.clipboard()})
}

// unpublished has what could not be written be written later.
func (k *keeper) unpublished(what string, err error) {
	k.log.Error("publishing "+what, "error", err)
	k.owed.Store(true)
}

// diagnostics is where the guard may write: not on the agent's screen.
func (k *keeper) diagnostics() *os.File {
	if k.state.Mode == "run" && text.IsTerminal(os.Stderr) {
		return nil
	}
	return os.Stderr
}

// update changes the state under its lock.
func (k *keeper) update(f func(*state.State)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.state)
}

// publish writes the state for everyone. A disk that can't be written does not
// stop the keeper: readers see that the file is old.
func (k *keeper) publish() {
	if k.dir == "" {
		return
	}
	// The copy is taken by who writes, or an older one could be written last.
	k.publishing.Lock()
	defer k.publishing.Unlock()
	names, elements := 0, 0
	if k.ledger != nil {
		names, elements = k.ledger.Counts()
	}
	fault := ""
	if k.audit != nil {
		if err := k.audit.Err(); err != nil { // which waits for a disk that is slow
			fault = err.Error()
		}
	}
	k.mu.Lock()
	k.state.Published = time.Now()
	k.state.Leases = state.Leases{Names: names, Elements: elements}
	k.state.Audit.Fault = fault
	s := k.state
	k.mu.Unlock()
	if err := k.dir.Write(state.StatusFile, 0o644, s); err != nil {
		k.log.Error("publishing the state", "error", err)
		return
	}
	// The log may be on the same file system: that it is full has to be published.
	k.dir.Spare(state.StatusFile, 0o644, stateSpare)
}

// stateSpare is room for a status with long faults in it.
const stateSpare = 16 << 10

func (k *keeper) noteSelfTest(r selftest.Report) {
	st := &state.SelfTest{OK: r.OK, Time: time.Now(), Checks: len(r.Checks), Millis: int64(r.Millis)}
	if !r.OK {
		st.Failures = r.Failures()
	}
	k.update(func(s *state.State) { s.SelfTest = st })
}

// clipboard reports whether programs may write the clipboard of who looks at them.
func (k *keeper) clipboard() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.policy == nil || k.policy.Settings().Session.Clipboard
}
