package filter

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestCutIsOwedUntilTheKernelTakesIt: a denial and a grant's end that the kernel does not take are owed.
// The person is told, status shows it, and they come into force without being asked for
// again.
func TestCutIsOwedUntilTheKernelTakesIt(t *testing.T) {
	lab.Require(t)
	mustrun.Tool(t, "iptables-legacy")
	w := rig.Confine(t, "45.30.9.9:8443\n", lab.BoxOptions{
		Env: []string{"AGENT_INIT_BACKEND=xtables-legacy"}, Caps: append(lab.DefaultCaps(), "NET_RAW")})
	denied, granted := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.10:8443")
	w.Did("allow", granted.String(), "--for", "1h")
	number := fmt.Sprint(w.Grants()[0].Number)
	for _, to := range []netip.AddrPort{denied, granted} {
		w.Streaming(to)
	}
	holder := w.Box.ExecStart(rig.LabCmd("flock", "-o", "/run/xtables.lock", "-c", "echo held; exec sleep 600"))
	if !holder.WaitOutput("held", lab.Patience) {
		t.Fatalf("the lock is not to be had: %s", holder.Stderr())
	}
	if r := w.Root("agent-init", "deny", "45.30.9.9", "--save"); r.Code == 0 || !strings.Contains(r.Stderr, "tried again") {
		t.Errorf("denied without the lock: %s", r)
	}
	// It may have to wait behind another try, for longer than the person does. Who leaves
	// before the answer ends nobody.
	if r := w.Root("agent-init", "grants", "--end", number); r.Code == 0 {
		t.Errorf("ended without the lock: %s", r)
	}
	if s, code := w.Status(); code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "not in force yet") {
		t.Errorf("status ends with %d: %v", code, s["why"])
	}
	rig.Must(t, holder.Signal(unix.SIGKILL))
	if !rig.Eventually(lab.Patience, func() bool { _, code := w.Status(); return code == 0 }) {
		s, _ := w.Status()
		t.Fatalf("still owed: %v", s["why"])
	}
	began := time.Now()
	for _, to := range []netip.AddrPort{denied, granted} {
		ended(w, to, began)
		w.Blocked("tcp", "-timeout", "1s", to.String())
	}
	for _, said := range []string{"denied for good", "ended by a person"} {
		w.Audited(said, func(e rig.Event) bool { return strings.Contains(e.Reason, said) })
	}
}
