package process

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestRefusalsWorkspace: where the agent can't write in its workspace, or its home
// can't be given to it, the start says why, and what to do, in one line each.
func TestRefusalsWorkspace(t *testing.T) {
	lab.Require(t)
	for name, tt := range map[string]struct {
		owner     int
		mode      uint32
		env       []string
		without   string // of the capabilities
		want, not string
	}{
		"root's":        {owner: 0, mode: 0o755, want: "the agent can't write in /workspace: it belongs to uid 0, and the agent is uid "},
		"foreign":       {owner: 1234, mode: 0o755, env: []string{"HOST_UID=4321"}, want: "it belongs to uid 1234, and the agent is uid 4321, by HOST_UID=4321\n  remedy: "},
		"its own":       {owner: 1234, mode: 0o755, env: []string{"HOST_UID=1234"}, not: "can't write in /workspace"},
		"everybody's":   {owner: 0, mode: 0o777, not: "can't write in /workspace"},
		"without CHOWN": {owner: 1234, mode: 0o755, env: []string{"HOST_UID=1234"}, without: "CHOWN", want: "the agent's home does not belong to it (uid 1234), and can't be given to it: capability CHOWN is missing\n  remedy: ", not: "level=WARN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := rig.NewLab(t)
			caps := append(lab.DefaultCaps(), "CHOWN")
			caps = slices.DeleteFunc(caps, func(c string) bool { return c == tt.without })
			w := &rig.World{T: t, Lab: l, Box: l.NewBox(rig.WithBackend(lab.BoxOptions{Binary: lab.Binary(t), Caps: caps, Env: tt.env, Files: []lab.File{
				{Path: "/etc/agent-init/allowlist.txt", Data: []byte(rig.Allowlist)},
				{Path: "/workspace", Dir: true, UID: tt.owner, GID: tt.owner, Mode: tt.mode},
			}}))}
			r := w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "true"}}).Wait(time.Minute)
			if r.Code != 0 || !strings.Contains(r.Stderr, tt.want) {
				t.Errorf("no %q: %s", tt.want, r)
			}
			if tt.not != "" && strings.Contains(r.Stderr, tt.not) {
				t.Errorf("%q: %s", tt.not, r)
			}
		})
	}
}
