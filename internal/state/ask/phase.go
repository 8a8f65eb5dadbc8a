package ask

import "github.com/agent-init/agent-init/pkg/selftest"

// PhaseChange is the answer to Phase.
type PhaseChange struct {
	Version int              `json:"version"`
	Phase   string           `json:"phase"` // that is in force now
	Was     string           `json:"was"`   // before
	Fault   string           `json:"fault,omitempty"`
	Proof   *selftest.Report `json:"proof,omitempty"` // of the phase that was asked for; none: nothing was proved
}
