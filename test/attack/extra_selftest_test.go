package attack

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLabX27StoppedProbes: the self-test's probes run as the agent's user, who may
// send them signals where it lives already, as with up. Killed or stopped they
// prove nothing: up says so, in time, and the network stays closed.
func TestLabX27StoppedProbes(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetLatency(500 * time.Millisecond)                                // so that the probes take a while
	for _, sig := range often([]string{"KILL"}, []string{"KILL", "STOP"}) { // STOP takes the minute that a self-test may
		t.Run(sig, func(t *testing.T) {
			w := startIn(t, l, "ok.test required\n", lab.BoxOptions{}, "sleep", "infinity")
			storm := w.box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: []string{"poke", "harry", "-for", "5m", sig}})
			defer storm.Wait(0)
			defer func() { must(t, storm.Signal(unix.SIGKILL)) }()
			r := w.box.Exec(lab.Cmd{Args: []string{"agent-init", "up"}, Timeout: 3 * time.Minute})
			refused(t, r, 70)
			w.box.ForgetPackets()
			for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"udp", "1.1.1.1:443"}, {"resolve", "evil.test"}} {
				if p := w.box.Poke(lab.AgentUID, op...); p.OK {
					t.Errorf("got through: %v: %s", op, p)
				}
			}
			w.upstreamOnlyOr("ok.test")
		})
	}
}
