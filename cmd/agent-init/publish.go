package main

import (
	"os"

	"golang.org/x/sys/unix"
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
	return k.dir.write(agentFile, 0o600, publishedAgent{spec, k.clipboard()})
}

// unpublished has what could not be written be written later.
func (k *keeper) unpublished(what string, err error) {
	k.log.Error("publishing "+what, "error", err)
	k.owed.Store(true)
}

// diagnostics is where the guard may write: not on the agent's screen.
func (k *keeper) diagnostics() *os.File {
	if k.state.Mode == "run" && isTerminal(os.Stderr) {
		return nil
	}
	return os.Stderr
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
