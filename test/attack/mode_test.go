package attack

import (
	"fmt"
	"os"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// mode is how the boxes of the lab are confined: AGENT_INIT_TEST_MODE, "up" or
// "sidecar", or "" for run. See make test-lab-modes.
func mode() string { return os.Getenv("AGENT_INIT_TEST_MODE") }

// inSidecar is an entry that a sidecar's policy has besides, since it reads no hosts
// file (TestLabX58SharedHosts).
func inSidecar(entry string) string {
	if mode() == "sidecar" {
		return entry
	}
	return ""
}

// startMode starts agent-init in a new box, with nothing but the network
// confined in up and sidecar mode.
func startMode(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions) *world {
	t.Helper()
	switch mode() {
	case "":
		return startIn(t, l, list, opts, "agent-init", "run", "--", "sleep", "infinity")
	case "up":
		w := startIn(t, l, list, opts, "sleep", "infinity")
		w.mode = mode()
		if r := w.root("agent-init", "up"); r.Code != 0 {
			t.Fatalf("agent-init up: %s", r)
		}
		return w
	case "sidecar":
		w := startIn(t, l, list, opts, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
		w.mode = mode()
		w.other = l.NewBox(lab.BoxOptions{Share: w.box, Caps: []string{}, NoNewPrivs: true, Resolv: opts.Resolv, Hosts: opts.Hosts,
			Env: opts.Env, Files: opts.Files, Binds: opts.Binds, NoIPv6: opts.NoIPv6})
		w.other.Idle()
		return w
	}
	t.Fatalf("AGENT_INIT_TEST_MODE=%s is no mode", mode())
	return nil
}

// launch starts a program as the agent, which finds no hand of the agent's there.
func (w *world) launch(args ...string) *lab.Process {
	w.letGo()
	box, cmd := w.inside(args)
	return box.ExecStart(cmd)
}

// inside is where and how a program is started as the agent.
func (w *world) inside(args []string) (*lab.Box, lab.Cmd) {
	switch w.mode {
	case "up":
		return w.box, lab.Cmd{Args: args, UID: lab.AgentUID}
	case "sidecar":
		return w.other, lab.Cmd{Args: args, UID: lab.AgentUID}
	}
	return w.box, lab.Cmd{Args: append([]string{"agent-init", "exec", "--"}, args...)}
}
