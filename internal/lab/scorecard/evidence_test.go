package scorecard

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestComplains: what a kernel says of a datagram that came from outside is not the agent's; what it sends unasked is.
func TestComplains(t *testing.T) {
	for _, c := range []struct {
		id    string
		proto uint8
		leaks int
	}{{"E31", unix.IPPROTO_ICMP, 0}, {"E31", unix.IPPROTO_UDP, 1}, {"E29", unix.IPPROTO_ICMP, 1}} {
		for _, a := range Attacks() {
			if a.ID != c.id {
				continue
			}
			a.Judge = nil
			e := &Evidence{Setting: &Setting{Lab: &lab.Lab{Web: &lab.Web{}}}, Attack: &a, Packets: []lab.Packet{{Dst: a.bad().v4, Proto: c.proto}}}
			if out, _ := e.leaks(); len(out) != c.leaks {
				t.Errorf("%s, protocol %d: %q", c.id, c.proto, out)
			}
		}
	}
}
