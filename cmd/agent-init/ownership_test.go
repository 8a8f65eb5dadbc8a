package main

import (
	"strings"
	"testing"
)

// TestUnwritable: whose the workspace is, who the agent is, and one remedy in the
// words of what started it.
func TestUnwritable(t *testing.T) {
	for name, tt := range map[string]struct {
		l            launch
		owner        uint32
		hostUID      string
		cause, wants string
	}{
		"root's":                 {byDocker, 0, "", "belongs to uid 0, and the agent is uid 1000", "chown -R 1000 DIR"},
		"foreign, docker":        {byDocker, 1234, "1000", "uid 1234, and the agent is uid 1000, by HOST_UID=1000", "-e HOST_UID=1234 (compose: environment), which makes the agent that user; or give"},
		"foreign, devcontainer":  {byDevTool, 1234, "1000", "uid 1234", `"containerEnv": {"HOST_UID": "1234"}`},
		"foreign, by hand":       {byHand, 1234, "", "uid 1234", "HOST_UID=1234, which"},
		"kubernetes, root's":     {byKubernetes, 0, "", "uid 0", "fsGroup: 1000"},
		"its own, not writable":  {byPodman, 1000, "", "uid 1000", "chmod u+wx"},
		"foreign, in Kubernetes": {byKubernetes, 1234, "", "uid 1234", `env: [{name: HOST_UID, value: "1234"}]`},
	} {
		cause, remedy := unwritable(tt.l, "/workspace", 1000, tt.owner, tt.hostUID)
		if !strings.Contains(cause, tt.cause) || !strings.Contains(remedy, tt.wants) || strings.Contains(cause+remedy, "\n") {
			t.Errorf("%s: %s\n%s", name, cause, remedy)
		}
	}
}
