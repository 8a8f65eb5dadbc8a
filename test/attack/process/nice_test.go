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
	// The niceness, and the policy by which it is scheduled (proc_pid_stat(5)): 5 is SCHED_IDLE.
	const look = "awk '{print $19, $41}' /proc/self/stat; nice -n -1 awk '{print $19, $41}' /proc/self/stat 2>/dev/null; chrt -o 0 true 2>/dev/null && echo left"
	for setting, want := range map[string]string{"": "19 5", "nice: 0\n": "0 0", "nice: 15\n": "15 0"} {
		t.Run(strings.TrimSpace("policy "+setting), func(t *testing.T) {
			w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(setting)}}})
			if w.Mode == "up" || w.Mode == "sidecar" {
				return // somebody else starts the agent there
			}
			if r := w.Root("agent-init", "exec", "--", "sh", "-c", look); strings.TrimSuffix(r.Stdout, "left\n") != fmt.Sprintf("%s\n%[1]s\n", want) || want == "19 5" && strings.Contains(r.Stdout, "left") {
				t.Errorf("exec: %s", r)
			}
			// The command itself, its sessions and all others of its uid.
			all := w.Root("sh", "-c", fmt.Sprintf("for p in /proc/[0-9]*; do grep -q '^Uid:.*\t%d\t' $p/status && awk '{print $19, $41}' $p/stat; done | sort -u", lab.AgentUID))
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
