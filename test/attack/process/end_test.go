package process

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestEndOfShell: an interactive shell ignores TERM. In a window it ends with its
// terminal, and the container with it, before anything has to be killed. Nothing else is ignored in there, also if
// nohup, or a script's &, had agent-init ignore what ends a terminal's programs.
func TestEndOfShell(t *testing.T) {
	lab.Require(t)
	// What such a shell does about signals, with grace enough to tell a KILL from it.
	const shell = `grep SigIgn /proc/$$/status >/tmp/ignored; trap "" TERM; trap "exit 7" HUP; echo >/tmp/begun; while :; do sleep 0.1; done`
	for name, begin := range map[string]string{"engine": "", "nohup": `trap "" HUP INT; `} {
		t.Run(name, func(t *testing.T) {
			w := rig.StartIn(t, rig.NewLab(t), rig.Allowlist, lab.BoxOptions{}, "sh", "-c", begin+`exec "$@"`, "sh",
				"agent-init", "run", "--session", "always", "--grace", "10m", "--", "sh", "-c", shell)
			w.Ready()
			if !rig.Eventually(lab.Patience, func() bool { _, err := w.Box.ReadFile("/tmp/begun"); return err == nil }) {
				t.Fatal("the shell has not begun")
			}
			if got, err := w.Box.ReadFile("/tmp/ignored"); !regexp.MustCompile(`^SigIgn:\t[0-9a-f]{15}[048c]\n$`).Match(got) {
				t.Errorf("the window began with %s, %v", got, err)
			}
			rig.Must(t, w.Agent.Signal(unix.SIGTERM))
			if r := w.Agent.Wait(0); r.Code != 7 {
				t.Errorf("%s", r)
			}
		})
	}
}

// TestRunTwice: an image's entrypoint is agent-init run. Who types that as the
// command gets to read so, and not that the container lacks root.
func TestRunTwice(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, rig.NewLab(t), rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "agent-init", "run", "--session", "always", "--", "true")
	r := w.Agent.Wait(time.Minute)
	rig.Refused(t, r, 77, "entrypoint already", "AGENT_INIT_SESSION=always")
	if strings.Contains(r.Stderr, "--user") {
		t.Errorf("a remedy for something else: %s", r)
	}
}
