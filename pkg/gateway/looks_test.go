package gateway

import (
	"io"
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
)

// TestOnlyLooks: who connects and says nothing, to see whether a port is open, was denied nothing. Who has said a part of
// something was.
func TestOnlyLooks(t *testing.T) {
	r := newRig(t, nil)
	n := 0
	for _, reset := range []bool{false, true} {
		for _, said := range []string{"", "\x16\x03"} {
			c := r.connect(siteTLS)
			io.WriteString(c, said)
			if reset {
				abort(c)
			} else {
				c.Close()
			}
			e := r.event(audit.Connect, n)
			if want := map[bool]audit.Verdict{true: audit.Info, false: audit.Deny}[said == ""]; e.Verdict != want {
				t.Errorf("reset %t, said %q: %+v", reset, said, e)
			}
			n++
		}
	}
	r.connect(siteWeb).Close()
	if e := r.event(audit.Connect, n); e.Verdict != audit.Info {
		t.Errorf("on port 80: %+v", e)
	}
	if got := r.Stats().Refused; got > 2 {
		t.Errorf("%d were refused", got)
	}
}
