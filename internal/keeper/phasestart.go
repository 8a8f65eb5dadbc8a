package keeper

import (
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
)

// beginning is how a start finds the phase that it begins in, which is setup once at most.
type beginning struct {
	phase string
	once  *policy.Saved // held until setup is spent; nil: it does not begin in setup
}

// firstPhase finds the phase of the start: what the file says, else what the flag says, else run. Whatever was before this
// start, it is not setup again.
func (b *base) firstPhase() (beginning, error) {
	asked, err := policy.ReadPhase(b.config.PolicyDir)
	if err != nil {
		return beginning{}, container.ReadFault(err)
	}
	if asked == "" {
		asked = b.config.Phase
	}
	if asked != policy.Setup {
		return beginning{phase: policy.Run}, nil
	}
	once, err := policy.OpenSaved(b.config.PhaseFile)
	if err != nil {
		return beginning{}, container.ReadFault(err)
	}
	if once.Data != nil {
		b.log.Warn("setup was begun here before: this start begins in run", "file", b.config.PhaseFile)
		return beginning{phase: policy.Run}, once.Close()
	}
	return beginning{policy.Setup, once}, nil
}

// spend has no other start begin in setup. Until it has returned, nothing of setup is in force.
func (g beginning) spend(files *policy.Bundle) error {
	if g.once == nil {
		return nil
	}
	if files.Phases[policy.Setup] == nil {
		return fault.New(fault.Policy, "make the directory phases/setup beside the allowlist, or start in run: docs/phases.md", "the start is to begin in setup, and there is no phases/setup")
	}
	if err := g.once.Replace([]byte("begun\n")); err != nil {
		return container.ReadFault(err)
	}
	return nil
}

// readBegun is read of a start. Setup is spent once the policy is found to be right.
func (b *book) readBegun() (*policy.Bundle, *policy.Policy, error) {
	first, err := b.firstPhase()
	if err != nil {
		return nil, nil, err
	}
	if first.once != nil {
		defer first.once.Close()
	}
	b.begun = first.phase
	files, p, err := b.read()
	if err == nil {
		err = first.spend(files)
	}
	return files, p, err
}
