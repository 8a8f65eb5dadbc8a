package state

import (
	"os"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

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
	dir, err := Find()
	if err != nil {
		return agent, NotRunning(err)
	}
	if err := dir.Read(AgentFile, &agent); err != nil {
		return agent, NotRunning(err)
	}
	return agent, nil
}

// ReadAgentSpec is ReadAgent for who needs no more than the confinement.
func ReadAgentSpec() (privdrop.Spec, error) {
	agent, err := ReadAgent()
	return agent.Spec, err
}
