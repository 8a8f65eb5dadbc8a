package process

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestOutputCantBeRead: what the container says goes through a pipe, the log with
// log.stdout too. The agent may open it by name to write to it, and not to read.
func TestOutputCantBeRead(t *testing.T) {
	lab.Require(t)
	const script = `for fd in 1 2; do (exec 3</proc/self/fd/$fd) && echo "reads $fd"; (exec 3<>/proc/self/fd/$fd) && echo "reads and writes $fd"; done
		echo named >/dev/stdout; echo error >/dev/stderr; read -r line </dev/stdin; echo "got $line"; (exec 3>/proc/self/fd/0) && echo "writes 0"; echo over`
	l := rig.NewLab(t)
	w := &rig.World{T: t, Lab: l, Box: l.NewBox(rig.WithBackend(lab.BoxOptions{Binary: lab.Binary(t),
		Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(rig.Allowlist)}}}))}
	w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sh", "-c", script}, Stdin: "input\n"})
	r := w.Agent.Wait(time.Minute)
	for _, bad := range []string{"reads", "writes"} {
		if strings.Contains(r.Stdout, bad) {
			t.Errorf("%s: %s", bad, r)
		}
	}
	for _, want := range []string{"named\n", "got input\n", "over\n"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q: %s", want, r)
		}
	}
	if !strings.Contains(r.Stderr, "error\n") {
		t.Errorf("nothing on stderr: %s", r)
	}
}
