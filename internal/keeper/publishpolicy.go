package keeper

import (
	"io"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
)

// publishPolicy writes the policy, and what agents are told about it. It is
// called with reloading held.
func (k *keeper) publishPolicy(p *policy.Policy) {
	k.mu.Lock()
	head := state.PublishedHead{Version: 1, Dir: k.config.PolicyDir, Hosts: k.bundle.Hosts, Inbound: state.Inbound(p)}
	grants, monitor := k.grants.Clone().List, k.state.Monitor
	k.mu.Unlock()
	if err := k.dir.WriteWith(state.PolicyFile, 0o644, func(w io.Writer) error { return state.WriteRules(w, head, p) }); err != nil {
		k.unpublished("the policy", err)
	}
	if err := k.dir.WriteWith(state.ReadmeFile, 0o644, func(w io.Writer) error { return writeReadme(w, p, grants, monitor) }); err != nil {
		k.unpublished("what agents are told", err)
	}
}
