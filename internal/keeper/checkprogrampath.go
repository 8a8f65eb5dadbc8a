package keeper

import (
	"context"

	"github.com/agent-init/agent-init/internal/container"
)

// checkProgramPath refuses a container in which somebody else than root could
// have agent-init replaced.
func (k *keeper) checkProgramPath(context.Context) error {
	return container.ProgramPathFault(k.config.Environ["PATH"])
}
