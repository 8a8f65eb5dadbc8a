package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// Word says how far what is published can be relied on; s is nil where nothing is. Unless the agent is confined
// by it, a sentence says what holds, before anything else is said.
func (s *State) Word() (word, unless string) {
	switch {
	case s == nil:
		return "not running", "agent-init does not run here: nothing is confined. This is what its policy would say."
	case s.Phase == PhaseOpen:
		return "not confined", "NOT CONFINED: the network is open. This is what the policy would say."
	case s.Phase == PhaseReady && s.Keeper.Alive() && s.Policy.Phase == policy.Sealed:
		return "sealed", "All is sealed between two phases: everything is refused, whatever the policy says. See agent-init status."
	case s.Phase == PhaseReady && s.Keeper.Alive():
		return "confined", ""
	case s.Phase == PhaseReady, s.Phase == PhaseEnded:
		return "keeper gone", "The keeper is gone: nothing new opens, whatever the policy says. Restart the container, or run agent-init up."
	}
	return "not ready", "agent-init has not started: everything is refused. See agent-init status."
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
	var s State
	if Published(StatusFile, &s) == nil && s.Open() != "" {
		fmt.Fprintf(w, "[the network is NOT CONFINED: %s]\n", s.Open())
	}
}

// Confined is how the agent is confined, for exec.
type Confined struct {
	privdrop.Spec
	Clipboard bool `json:"clipboard"` // may be written by what programs print
}

// ReadAgent reads how the agent is confined. Only root may.
func ReadAgent() (agent Confined, err error) {
	if os.Geteuid() != 0 {
		return agent, fault.New(fault.Privilege, "use docker exec -u root, or run the command itself: this user is confined already",
			"only root can become the agent")
	}
	err = Published(AgentFile, &agent)
	return agent, err
}
