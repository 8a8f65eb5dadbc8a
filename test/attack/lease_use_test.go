package attack

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

var _ = also(TestLeaseLastsForItsPortAlone, underStress)

// TestLeaseLastsForItsPortAlone waits out a real lease: connections that lead to the gate, and
// no further, keep no address. It may be somebody else's by then.
func TestLeaseLastsForItsPortAlone(t *testing.T) {
	w := confine(t, "*.cdn.test:443\n*.cdn.test:22\n", lab.BoxOptions{})
	stale := netip.MustParseAddr("45.30.36.1")
	w.lab.DNS.Set("poked.cdn.test", lab.Answer{Addrs: []netip.Addr{stale}, TTL: 1})
	w.works("resolve", "poked.cdn.test")
	w.lab.DNS.SetAddrs("poked.cdn.test", "45.30.36.2")
	accepted := 0
	if !eventually(100*time.Second, func() bool {
		// A SYN to each port, and the gate's answer on one of them.
		if w.poke("tcp", "-timeout", "1s", at(stale, 443)).OK {
			accepted++
		}
		time.Sleep(3 * time.Second) // the pace of the attack
		return w.leases()[stale] == 0
	}) {
		t.Errorf("poked %d times, and still leased for %v", accepted, w.leases()[stale])
	}
	if accepted < 3 {
		t.Errorf("proves nothing: the gate answered %d times", accepted)
	}
	w.box.ForgetPackets()
	w.blocked("tcp", "-timeout", "1s", at(stale, 22))
	w.blocked("tcp", "-timeout", "1s", at(stale, 443))
	w.sealed(lab.ToAddr(stale.String()))
}

// TestPrimedPortsLeadNowhere: flows of the agent's from every port to the guard's DNS
// server lose it no question.
func TestPrimedPortsLeadNowhere(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	for _, server := range []netip.Addr{lab.Upstream4, lab.Upstream6} {
		if p := w.poke("prime", at(server, 53)); p.Detail["sent"].(float64) < 20000 {
			t.Fatalf("proves nothing: %s", p)
		}
	}
	for i := range 10 {
		name := fmt.Sprintf("n%d.cdn.test", i)
		w.lab.DNS.SetAddrs(name, fmt.Sprintf("45.30.37.%d", i+1))
		w.works("resolve", name)
	}
}

// TestLeasesTakeLittleMemory: a full table of flows is the kernel's matter. The keeper
// reads none of it, whatever it does meanwhile.
func TestLeasesTakeLittleMemory(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	keeper := w.keeper().host
	// What these take of memory, the program's own code among it, which a start leaves at its end.
	changes := func(round string) (peak int) {
		must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", keeper), []byte("5"), 0)) // VmHWM, see proc(5)
		w.did("deny", round+".test")
		w.did("reload")
		w.did("allow", "45.30.9.9:8443", "--for", "1h")
		w.did("deny", "45.30.9.9")
		return w.peak(keeper)
	}
	before := max(changes("first"), changes("second"))
	for i := range often(2, 5) {
		w.launch("poke", "flood", "-n", "65000", "-spread", "65000", fmt.Sprintf("127.%d.0.1:9", 10+2*i)).Wait(0)
	}
	n := w.flows()
	if n < 50_000 {
		t.Errorf("proves nothing: %d flows", n)
	}
	most := changes("third")
	t.Logf("%d flows: the keeper had %d KiB at most before, and %d with them", n, before, most)
	if most > before+4<<10 {
		t.Errorf("it has grown from %d to %d KiB", before, most)
	}
}

// peak is the most memory that a process has had since that was reset, in KiB.
func (w *world) peak(host int) (kib int) {
	w.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", host))
	must(w.T, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err = strconv.Atoi(fields[1])
			must(w.T, err)
		}
	}
	return kib
}
