package process

import (
	"os"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// sidecarAgent is how the agent's container of the manifest is started, with args in
// the place of the agent.
func sidecarAgent(t *testing.T, args ...string) []string {
	t.Helper()
	data, err := os.ReadFile("../../../deploy/kubernetes/sidecar.yaml")
	rig.Must(t, err)
	var pod struct {
		Spec struct {
			Containers []struct{ Command []string }
		}
	}
	rig.Must(t, yaml.Unmarshal(data, &pod))
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.Containers[0].Command) == 0 {
		t.Fatalf("containers: %+v", pod)
	}
	return append(pod.Spec.Containers[0].Command, args...)
}

// TestSidecarAgentEnds: as the first process of its container, the agent of
// sidecar.yaml ends by SIGTERM, whether or not it has a handler, and its status is
// the container's.
func TestSidecarAgentEnds(t *testing.T) {
	l := rig.NewLab(t)
	box := func() *lab.Box { return l.NewBox(lab.BoxOptions{Caps: []string{}, NoNewPrivs: true}) }
	for name, c := range map[string]struct {
		agent []string
		code  int
	}{
		"its own": {[]string{"sh", "-c", "exit 7"}, 7},
		"ended":   {[]string{"sh", "-c", "kill -9 $$"}, 137},
		"input":   {[]string{"sh", "-c", "read line; test \"$line\" = hello"}, 0},
	} {
		if r := box().Start(lab.Cmd{Args: sidecarAgent(t, c.agent...), UID: lab.AgentUID, Stdin: "hello\n"}).Wait(time.Minute); r.Code != c.code {
			t.Errorf("%s: ended with %d, want %d: %s", name, r.Code, c.code, r)
		}
	}
	for name, c := range map[string]struct {
		agent []string
		code  int
	}{
		"no handler": {[]string{"sh", "-c", "echo ready; exec sleep 1000"}, 143},
		"a handler":  {[]string{"sh", "-c", "trap 'sleep 1; exit 3' TERM; echo ready; while :; do sleep 0.1; done"}, 3},
	} {
		p := box().Start(lab.Cmd{Args: sidecarAgent(t, c.agent...), UID: lab.AgentUID})
		if !rig.Eventually(time.Minute, func() bool { return p.Stdout() == "ready\n" }) {
			t.Fatalf("%s: %s", name, p.Stderr())
		}
		rig.Must(t, p.Signal(unix.SIGTERM))
		if r := p.Wait(time.Minute); r.Code != c.code || r.TimedOut {
			t.Errorf("%s: ended with %d, want %d: %s", name, r.Code, c.code, r)
		}
	}
}
