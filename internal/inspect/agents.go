package inspect

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
)

// AgentsIn are those that a gateway's policy in dir lists: none, if it is somebody else's, or wrong, which check says.
func AgentsIn(dir string) []policy.Agent {
	b, err := bundleOf(dir, state.CeilingHome, nil)
	if err != nil {
		return nil
	}
	p, err := policy.Parse(b, allowlist.Files)
	if err != nil {
		return nil
	}
	return p.Settings.Agents
}

// DirOf is where the policy of an agent is, of a gateway whose own is in dir. One that is kept may be gone from the list.
func DirOf(agent, dir string) (string, error) {
	list, at := AgentsIn(dir), agent
	var s state.State
	i := slices.IndexFunc(list, func(a policy.Agent) bool { return a.Name == agent })
	switch {
	case i >= 0:
		at = list[i].Dir()
	case len(list) > 0 && state.Published(state.StatusFile, &s) != nil:
		names := make([]string, len(list))
		for i, a := range list {
			names[i] = a.Name
		}
		return "", fault.New(fault.Usage, "name one of these: "+strings.Join(names, " "), "%s lists no agent %q", filepath.Join(dir, "policy.yaml"), agent)
	}
	return filepath.Join(dir, state.AgentsDir, at), nil
}
