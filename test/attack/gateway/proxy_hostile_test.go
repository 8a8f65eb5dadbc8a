package gateway

import (
	"slices"

	"github.com/agent-init/agent-init/test/attack/rig"
)

func authorizations(a *rig.Actor) []string {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return slices.Compact(slices.Clone(a.Shown))
}
