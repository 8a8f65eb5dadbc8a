package process

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestPathWritableByOthersRefused: a base image may begin PATH with a directory that everybody
// writes, as golang's and rust's do. An engine looks a health check and an exec by
// name up there, as root: the agent would be root at the next of them.
func TestPathWritableByOthersRefused(t *testing.T) {
	lab.Require(t)
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	const plant = `d=${PATH%%:*}; mkdir -p $d; printf '#!/bin/sh\nid -u >/tmp/ran-as\n' >$d/agent-init; chmod 755 $d/agent-init; echo started; exec sleep infinity`
	for name, c := range map[string]struct {
		dir  string
		file lab.File
		mode []string
	}{
		"everyone's":       {"/go/bin", lab.File{Path: "/go/bin", Dir: true, Mode: 0o1777}, []string{"run"}},
		"the agent's":      {"/home/agent/.local/bin", lab.File{Path: "/home/agent/.local/bin", Dir: true, UID: lab.AgentUID, GID: lab.AgentUID}, []string{"run"}},
		"still to be made": {"/home/agent/bin", lab.File{Path: "/etc/none"}, []string{"run"}},
		"without a wall":   {"/go/bin", lab.File{Path: "/go/bin", Dir: true, Mode: 0o1777}, []string{"run", "--unsafe-no-firewall"}},
		"up":               {"/go/bin", lab.File{Path: "/go/bin", Dir: true, Mode: 0o1777}, []string{"up"}},
		"sidecar":          {"/go/bin", lab.File{Path: "/go/bin", Dir: true, Mode: 0o1777}, []string{"sidecar"}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := lab.BoxOptions{Env: []string{"PATH=" + c.dir + ":" + system}, Files: []lab.File{c.file}}
			args := append([]string{"/usr/local/bin/agent-init"}, c.mode...)
			if c.mode[0] == "run" {
				args = append(args, "--", "sh", "-c", plant)
			}
			w := rig.StartIn(t, lab.New(t, lab.Options{}), rig.Allowlist, opts, args...)
			if w.Agent.WaitOutput("started", time.Minute) {
				w.Root("agent-init", "status", "--quiet") // as a health check does
				t.Fatalf("the agent was started; a program of its own ran as uid %s", w.Root("cat", "/tmp/ran-as").Stdout)
			}
			rig.Refused(t, w.Agent.Wait(time.Minute), 78, c.dir, "ENV PATH="+system+":$PATH", "policy.yaml")
		})
	}
}

// TestContainersPathIsJudged: up judges the PATH of the container, not only of who
// calls it (sudo sets one of its own), and doctor says the same.
func TestContainersPathIsJudged(t *testing.T) {
	lab.Require(t)
	const hostile = "PATH=/go/bin:/usr/local/bin:/usr/bin:/bin"
	l := lab.New(t, lab.Options{})
	w := &rig.World{T: t, Lab: l, Box: l.NewBox(lab.BoxOptions{Binary: lab.Binary(t), Env: []string{hostile},
		Files: []lab.File{{Path: "/go/bin", Dir: true, Mode: 0o1777}}})}
	w.Box.Idle()
	rig.Refused(t, w.Root("env", "PATH=/usr/local/bin:/usr/bin:/bin", "agent-init", "up"), 78, "/go/bin", "ENV PATH=")
	ills, code := w.Doctor()
	if code != 1 || !strings.Contains(ills["program"], "fail: ") || !strings.Contains(ills["program"], "/go/bin") {
		t.Errorf("doctor: exit %d, %q", code, ills)
	}
	if r := w.Root("/usr/local/bin/agent-init", "check", "--path"); r.Code != 78 || !strings.Contains(r.Stderr, "/go/bin") {
		t.Errorf("check: %s", r)
	}
}
