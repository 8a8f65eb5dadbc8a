package process

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestAgentStandsBack: what is started for the agent leaves the processor to its keepers, in each way to start it, and
// can't be had to come forward. The policy may say otherwise.
func TestAgentStandsBack(t *testing.T) {
	const look = "awk '{print $19}' /proc/self/stat; nice -n -1 awk '{print $19}' /proc/self/stat 2>/dev/null"
	for setting, want := range map[string]int{"": 19, "nice: 0\n": 0, "nice: 15\n": 15} {
		t.Run(strings.TrimSpace("policy "+setting), func(t *testing.T) {
			w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(setting)}}})
			if w.Mode == "up" || w.Mode == "sidecar" {
				return // somebody else starts the agent there
			}
			if r := w.Root("agent-init", "exec", "--", "sh", "-c", look); r.Stdout != fmt.Sprintf("%d\n%[1]d\n", want) {
				t.Errorf("exec: %s", r)
			}
			// The command itself, its sessions and all others of its uid.
			all := w.Root("sh", "-c", fmt.Sprintf("for p in /proc/[0-9]*; do grep -q '^Uid:.*\t%d\t' $p/status && awk '{print $19}' $p/stat; done | sort -u", lab.AgentUID))
			if all.Stdout != fmt.Sprintln(want) {
				t.Errorf("the agent's processes: %s", all)
			}
			for _, who := range []string{"guard", "__sessions"} {
				own := w.Root("sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q '^agent-init "+who+"' && awk '{print $19}' $p/stat; done | sort -u")
				if s := strings.TrimSpace(own.Stdout); s != "0" && s != "" {
					t.Errorf("%s: %s", who, own)
				}
			}
		})
	}
}
