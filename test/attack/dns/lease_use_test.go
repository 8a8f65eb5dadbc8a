package dns

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestLeaseLastsForItsPortAlone, rig.UnderStress)

// TestLeaseLastsForItsPortAlone waits out a real lease: connections that lead to the gate, and
// no further, keep no address. It may be somebody else's by then.
func TestLeaseLastsForItsPortAlone(t *testing.T) {
	w := rig.Confine(t, "*.cdn.test:443\n*.cdn.test:22\n", lab.BoxOptions{})
	stale := netip.MustParseAddr("45.30.36.1")
	w.Lab.DNS.Set("poked.cdn.test", lab.Answer{Addrs: []netip.Addr{stale}, TTL: 1})
	w.Works("resolve", "poked.cdn.test")
	w.Lab.DNS.SetAddrs("poked.cdn.test", "45.30.36.2")
	accepted := 0
	if !rig.Eventually(100*time.Second, func() bool {
		// A SYN to each port, and the gate's answer on one of them.
		if w.Poke("tcp", "-timeout", "1s", rig.At(stale, 443)).OK {
			accepted++
		}
		time.Sleep(3 * time.Second) // the pace of the attack
		return w.Leases()[stale] == 0
	}) {
		t.Errorf("poked %d times, and still leased for %v", accepted, w.Leases()[stale])
	}
	if accepted < 3 {
		t.Errorf("proves nothing: the gate answered %d times", accepted)
	}
	w.Box.ForgetPackets()
	w.Blocked("tcp", "-timeout", "1s", rig.At(stale, 22))
	w.Blocked("tcp", "-timeout", "1s", rig.At(stale, 443))
	w.Sealed(lab.ToAddr(stale.String()))
}

// TestPrimedPortsLeadNowhere: flows of the agent's from every port to the guard's DNS
// server lose it no question.
func TestPrimedPortsLeadNowhere(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	for _, server := range []netip.Addr{lab.Upstream4, lab.Upstream6} {
		if p := w.Poke("prime", rig.At(server, 53)); p.Detail["sent"].(float64) < 20000 {
			t.Fatalf("proves nothing: %s", p)
		}
	}
	for i := range 10 {
		name := fmt.Sprintf("n%d.cdn.test", i)
		w.Lab.DNS.SetAddrs(name, fmt.Sprintf("45.30.37.%d", i+1))
		w.Works("resolve", name)
	}
}

// TestLeasesTakeLittleMemory: a full table of flows is the kernel's matter. The keeper
// reads none of it, whatever it does meanwhile.
func TestLeasesTakeLittleMemory(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	keeper := w.Keeper().Host
	// What these take of memory, the program's own code among it, which a start leaves at its end.
	changes := func(round string) (peak int) {
		rig.Must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", keeper), []byte("5"), 0)) // VmHWM, see proc(5)
		w.Did("deny", round+".test")
		w.Did("reload")
		w.Did("allow", "45.30.9.9:8443", "--for", "1h")
		w.Did("deny", "45.30.9.9")
		return peakOf(w, keeper)
	}
	before := max(changes("first"), changes("second"))
	for i := range rig.Often(2, 5) {
		w.Launch("poke", "flood", "-n", "65000", "-spread", "65000", fmt.Sprintf("127.%d.0.1:9", 10+2*i)).Wait(0)
	}
	n := w.Flows()
	if n < 50_000 {
		t.Errorf("proves nothing: %d flows", n)
	}
	most := changes("third")
	t.Logf("%d flows: the keeper had %d KiB at most before, and %d with them", n, before, most)
	if most > before+4<<10 {
		t.Errorf("it has grown from %d to %d KiB", before, most)
	}
}

// peakOf is the most memory that a process has had since that was reset, in KiB.
func peakOf(w *rig.World, host int) (kib int) {
	w.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", host))
	rig.Must(w.T, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err = strconv.Atoi(fields[1])
			rig.Must(w.T, err)
		}
	}
	return kib
}
