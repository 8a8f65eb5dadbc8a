package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
)

// The words for how far what is published can be relied on.
const (
	WordConfined = "confined"
	WordAbsent   = "not running"
	WordOpen     = "not confined"
	WordGone     = "keeper gone"
	WordStart    = "not ready"
)

// UnlessConfined is said before anything else where the policy is not what holds.
var UnlessConfined = map[string]string{
	WordAbsent: "agent-init does not run here: nothing is confined. This is what its policy would say.",
	WordOpen:   "NOT CONFINED: the network is open. This is what the policy would say.",
	WordGone:   "The keeper is gone: nothing new opens, whatever the policy says. Restart the container, or run agent-init up.",
	WordStart:  "agent-init has not started: everything is refused. See agent-init status.",
}

// Word says how far s can be relied on; nil is where nothing was published.
func (s *State) Word() string {
	switch {
	case s == nil:
		return WordAbsent
	case s.Phase == PhaseOpen:
		return WordOpen
	case s.Phase == PhaseReady && s.Keeper.Alive():
		return WordConfined
	case s.Phase == PhaseReady, s.Phase == PhaseEnded:
		return WordGone
	}
	return WordStart
}

// Unconfined is the fault of what can't be done where the network is open.
func Unconfined() *fault.Fault {
	return fault.New(fault.Failure, "start without --unsafe-no-firewall", "NOT CONFINED: the container was started with an open network, and nothing is allowed, denied or logged")
}

// NotRunning is the fault of a state that can't be read.
func NotRunning(err error) *fault.Fault {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Failure, `start the container with agent-init run (a devcontainer: "overrideCommand": false), or run agent-init up`, "agent-init has not confined this container")
	}
	return fault.New(fault.Failure, "restart the container", "the state of agent-init can't be read: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// SayIfOpen says so to whoever attaches, and again when they leave.
func SayIfOpen(w io.Writer) {
	dir, err := Find()
	if err != nil {
		return
	}
	var s State
	if dir.Read(StatusFile, &s) == nil && s.Open() != "" {
		fmt.Fprintf(w, "[the network is NOT CONFINED: %s]\n", s.Open())
	}
}
