package keeper

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestUnwritable: whose the workspace is, who the agent is, and one remedy in the
// words of what started it.
func TestUnwritable(t *testing.T) {
	for name, tt := range map[string]struct {
		l            fault.Launch
		owner        uint32
		hostUID      string
		cause, wants string
	}{
		"root's":                 {fault.ByDocker, 0, "", "belongs to uid 0, and the agent is uid 1000", "chown -R 1000 DIR"},
		"foreign, docker":        {fault.ByDocker, 1234, "1000", "uid 1234, and the agent is uid 1000, by HOST_UID=1000", "-e HOST_UID=1234 (compose: environment), which makes the agent that user; or give"},
		"foreign, devcontainer":  {fault.ByDevTool, 1234, "1000", "uid 1234", `"containerEnv": {"HOST_UID": "1234"}`},
		"foreign, by hand":       {fault.ByHand, 1234, "", "uid 1234", "HOST_UID=1234, which"},
		"kubernetes, root's":     {fault.ByKubernetes, 0, "", "uid 0", "fsGroup: 1000"},
		"its own, not writable":  {fault.ByPodman, 1000, "", "uid 1000", "chmod u+wx"},
		"foreign, in Kubernetes": {fault.ByKubernetes, 1234, "", "uid 1234", `env: [{name: HOST_UID, value: "1234"}]`},
	} {
		cause, remedy := unwritable(tt.l, "/workspace", 1000, tt.owner, tt.hostUID)
		if !strings.Contains(cause, tt.cause) || !strings.Contains(remedy, tt.wants) || strings.Contains(cause+remedy, "\n") {
			t.Errorf("%s: %s\n%s", name, cause, remedy)
		}
	}
}
