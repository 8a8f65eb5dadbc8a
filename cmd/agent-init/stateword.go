package main

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
)

// The words for how far what is published can be relied on.
const (
	wordConfined = "confined"
	wordAbsent   = "not running"
	wordOpen     = "not confined"
	wordGone     = "keeper gone"
	wordStart    = "not ready"
)

// unlessConfined is said before anything else where the policy is not what holds.
var unlessConfined = map[string]string{
	wordAbsent: "agent-init does not run here: nothing is confined. This is what its policy would say.",
	wordOpen:   "NOT CONFINED: the network is open. This is what the policy would say.",
	wordGone:   "The keeper is gone: nothing new opens, whatever the policy says. Restart the container, or run agent-init up.",
	wordStart:  "agent-init has not started: everything is refused. See agent-init status.",
}

// word says how far s can be relied on; nil is where nothing was published.
func (s *state) word() string {
	switch {
	case s == nil:
		return wordAbsent
	case s.Phase == phaseOpen:
		return wordOpen
	case s.Phase == phaseReady && s.Keeper.alive():
		return wordConfined
	case s.Phase == phaseReady, s.Phase == phaseEnded:
		return wordGone
	}
	return wordStart
}

// openFault is the fault of what can't be done where the network is open.
func openFault() *fault.Fault {
	return fault.New(fault.Failure, "start without --unsafe-no-firewall", "NOT CONFINED: the container was started with an open network, and nothing is allowed, denied or logged")
}

func notRunning(err error) *fault.Fault {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Failure, `start the container with agent-init run (a devcontainer: "overrideCommand": false), or run agent-init up`, "agent-init has not confined this container")
	}
	return fault.New(fault.Failure, "restart the container", "the state of agent-init can't be read: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
}
