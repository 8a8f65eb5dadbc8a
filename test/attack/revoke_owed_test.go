package attack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestCutIsOwedUntilTheKernelTakesIt: a denial and a grant's end that the kernel does not take are owed.
// The person is told, status shows it, and they come into force without being asked for
// again.
func TestCutIsOwedUntilTheKernelTakesIt(t *testing.T) {
	lab.Require(t)
	mustrun.Tool(t, "iptables-legacy")
	w := confine(t, "45.30.9.9:8443\n", lab.BoxOptions{
		Env: []string{"AGENT_INIT_BACKEND=xtables-legacy"}, Caps: append(lab.DefaultCaps(), "NET_RAW")})
	denied, granted := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.10:8443")
	w.did("allow", granted.String(), "--for", "1h")
	number := fmt.Sprint(w.grants()[0].Number)
	for _, to := range []netip.AddrPort{denied, granted} {
		w.streaming(to)
	}
	holder := w.box.ExecStart(labCmd("flock", "-o", "/run/xtables.lock", "-c", "echo held; exec sleep 600"))
	if !holder.WaitOutput("held", lab.Patience) {
		t.Fatalf("the lock is not to be had: %s", holder.Stderr())
	}
	if r := w.root("agent-init", "deny", "45.30.9.9", "--save"); r.Code == 0 || !strings.Contains(r.Stderr, "tried again") {
		t.Errorf("denied without the lock: %s", r)
	}
	// It may have to wait behind another try, for longer than the person does. Who leaves
	// before the answer ends nobody.
	if r := w.root("agent-init", "grants", "--end", number); r.Code == 0 {
		t.Errorf("ended without the lock: %s", r)
	}
	if s, code := w.status(); code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "not in force yet") {
		t.Errorf("status ends with %d: %v", code, s["why"])
	}
	must(t, holder.Signal(unix.SIGKILL))
	if !eventually(lab.Patience, func() bool { _, code := w.status(); return code == 0 }) {
		s, _ := w.status()
		t.Fatalf("still owed: %v", s["why"])
	}
	began := time.Now()
	for _, to := range []netip.AddrPort{denied, granted} {
		w.ended(to, began)
		w.blocked("tcp", "-timeout", "1s", to.String())
	}
	for _, said := range []string{"denied for good", "ended by a person"} {
		w.audited(said, func(e event) bool { return strings.Contains(e.Reason, said) })
	}
}
