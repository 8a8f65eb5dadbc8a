package process

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestStoppedProbesFailTheStart, rig.UnderStress)

// TestStoppedProbesFailTheStart: the self-test's probes run as the agent's user, who may
// send them signals where it lives already, as with up. Killed or stopped they
// prove nothing: up says so, in time, and the network stays closed.
func TestStoppedProbesFailTheStart(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetLatency(500 * time.Millisecond)                                    // so that the probes take a while
	for _, sig := range rig.Often([]string{"KILL"}, []string{"KILL", "STOP"}) { // STOP takes the minute that a self-test may
		t.Run(sig, func(t *testing.T) {
			w := rig.StartIn(t, l, "ok.test required\n", lab.BoxOptions{}, "sleep", "infinity")
			storm := w.Box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: []string{"poke", "harry", "-for", "5m", sig}})
			defer storm.Wait(0)
			defer func() { rig.Must(t, storm.Signal(unix.SIGKILL)) }()
			r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "up"}})
			rig.Refused(t, r, 70)
			w.Box.ForgetPackets()
			for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"udp", "1.1.1.1:443"}, {"resolve", "evil.test"}} {
				if p := w.Box.Poke(lab.AgentUID, op...); p.OK {
					t.Errorf("got through: %v: %s", op, p)
				}
			}
			w.UpstreamOnlyOr("ok.test")
		})
	}
}

var _ = rig.Also(TestFirstProbeCantBeTraced, rig.UnderStress)

// TestFirstProbeCantBeTraced: a process of the agent's uid is in the container before the agent, as one of docker exec
// can be. It can't trace the first self-test's process, and so write its report. It can stop it; a request to end is
// heeded all the same, before the minute is over that a self-test may take.
func TestFirstProbeCantBeTraced(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetLatency(lab.Patience) // which the self-test waits for
	w := rig.StartIn(t, l, "ok.test required\n", lab.BoxOptions{}, "agent-init", "run", "--", "true")
	var probe rig.Inmate
	if !rig.Eventually(lab.Patience, func() bool {
		all := rig.Inmates(t, w.Agent)
		i := slices.IndexFunc(all, func(p rig.Inmate) bool { return p.Uid == lab.AgentUID && strings.HasSuffix(p.Args, " __probe") })
		if i >= 0 {
			probe = all[i]
		}
		return i >= 0
	}) {
		t.Fatal("no process of a self-test")
	}
	pid := strconv.Itoa(probe.Pid)
	if p := w.Box.Poke(lab.AgentUID, "ptrace", pid); p.Errno != "EPERM" {
		t.Errorf("its uid may trace it: %s", p)
	}
	// It was so from its first instruction on: what it executes is a file that the agent can't read (would_dump,
	// fs/exec.c).
	var program unix.Stat_t
	if rig.Must(t, unix.Stat(fmt.Sprintf("/proc/%d/exe", probe.Host), &program)); program.Mode&0o444 != 0 || program.Uid != 0 {
		t.Errorf("it executes a file of uid %d, mode %o", program.Uid, program.Mode)
	}
	if p := w.Box.Poke(lab.AgentUID, "kill", pid, "STOP"); !p.OK {
		t.Errorf("proves nothing, it was not stopped: %s", p)
	}
	if !rig.Eventually(lab.Patience, func() bool { return strings.Contains(w.Agent.Stderr(), "prove the confinement") }) {
		t.Fatalf("it does not wait for the self-test: %s", w.Agent.Stderr())
	}
	rig.Must(t, w.Agent.Signal(unix.SIGTERM))
	if r := w.Agent.Wait(30 * time.Second); r.Code != 128+int(unix.SIGTERM) {
		t.Errorf("told to end: %s", r)
	}
}
