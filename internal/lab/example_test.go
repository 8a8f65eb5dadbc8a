package lab_test

import (
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// A whole test: one box, its agent tries to reach a name, and the far side
// says what came.
func Example() {
	test := func(t *testing.T) {
		lab.Require(t)
		l := lab.New(t, lab.Options{})
		l.DNS.SetAddrs("mine.test", "45.30.1.1", "2a0f:30:1::1")

		box := l.NewBox(lab.BoxOptions{
			Binary: lab.Binary(t),
			Files:  []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte("mine.test\n")}},
		})
		p := box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
		if r := box.Exec(lab.Cmd{Args: []string{"agent-init", "wait"}}); r.Code != 0 {
			t.Fatalf("not ready: %s\n%s", r, p.Stderr())
		}

		box.ForgetPackets()
		if got := box.Poke(lab.AgentUID, "http", "https://mine.test/"); !got.OK {
			t.Errorf("allowed: %s", got)
		}
		if got := box.Poke(lab.AgentUID, "tcp", "45.30.66.6:443"); got.OK || got.Errno != "ECONNREFUSED" {
			t.Errorf("denied: %s", got)
		}
		if escaped := box.Packets(lab.Routed, lab.ToAddr("45.30.66.6")); len(escaped) != 0 {
			t.Errorf("left the box: %v", escaped)
		}
		box.Poke(lab.AgentUID, "dns", "192.0.2.53:53", "secret.evil.test", "A")
		if q := l.Queries("evil.test"); len(q) != 0 {
			t.Errorf("reached a DNS server: %v", q)
		}
	}
	_ = test
}
