package filter

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// makeFlows has the agent make so many: to addresses that nothing allows, since what
// it sends to port 53 of any comes to the guard, and when no more of these can be told
// apart, to loopback.
func makeFlows(w *rig.World, n int) {
	w.Helper()
	const most = 60000 // from one port
	for left, at := n, 0; left > 0; left, at = left-most, at+1 {
		some, to := fmt.Sprint(min(left, most)), "45.100.0.1:53"
		if at > 0 {
			to = fmt.Sprintf("127.%d.0.1:9", 10+2*at)
		}
		w.Launch("poke", "flood", "-n", some, "-spread", some, to).Wait(0)
	}
	if got := w.Flows(); got < n*9/10 {
		w.Fatalf("proves nothing: %d flows, and %d were to be made", got, n)
	}
}

// ended fails the test if anything leaves for an address and port after this, and
// says when the last packet did.
func ended(w *rig.World, to netip.AddrPort, since time.Time) {
	w.Helper()
	returned := time.Now()
	for range 10 { // the stream sends ten times in that, if it does
		time.Sleep(100 * time.Millisecond)
	}
	last := since
	for _, p := range w.Box.Packets(lab.Routed, lab.ToAddr(to.Addr().String()), func(p *lab.Packet) bool { return p.DstPort == to.Port() }) {
		if p.Time.After(last) {
			last = p.Time
		}
	}
	if last.After(returned) {
		w.Errorf("%v: something left %v after the change was made", to, last.Sub(returned))
	}
	w.Logf("%v: the command took %v, the last packet left after %v", to, returned.Sub(since), last.Sub(since))
}

var _ = rig.Also(TestRevocationIsQuickAmongManyFlows, rig.UnderStress)

// TestRevocationIsQuickAmongManyFlows: how many flows the agent has made is no matter for the
// end of one: not for a denial, not for one that another change is ahead of, nor for
// a grant's end.
func TestRevocationIsQuickAmongManyFlows(t *testing.T) {
	for _, n := range rig.Often([]int{10000}, []int{0, 10000, 60000, 250000}) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := rig.Confine(t, "ok.test:8443\nok2.test:8443\n45.30.9.9:8443\n", lab.BoxOptions{})
			ok4, _ := rig.Named("ok.test")
			other4, _ := rig.Named("ok2.test")
			for _, name := range []string{"ok.test", "ok2.test"} {
				w.Works("resolve", name)
			}
			first, second := netip.AddrPortFrom(ok4, 8443), netip.AddrPortFrom(other4, 8443)
			plain, granted := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.10:8443")
			w.Did("allow", "45.30.9.10:8443", "--for", "1h")
			for _, to := range []netip.AddrPort{first, second, plain, granted} {
				w.Streaming(to)
			}
			makeFlows(w, n)

			began := time.Now()
			w.Did("deny", "ok.test")
			ended(w, first, began)

			// Two at once: neither waits for what the other has to end.
			began = time.Now()
			behind := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "deny", "45.30.9.9"}})
			w.Did("deny", "ok2.test")
			if r := behind.Wait(time.Minute); r.Code != 0 {
				t.Error(r)
			}
			ended(w, second, began)
			ended(w, plain, began)

			var number string
			for _, g := range w.Grants() {
				if strings.HasPrefix(g.Target, "45.30.9.10") {
					number = fmt.Sprint(g.Number)
				}
			}
			began = time.Now()
			w.Did("grants", "--end", number)
			ended(w, granted, began)
			for _, to := range []netip.AddrPort{first, second, plain, granted} {
				w.Blocked("tcp", "-timeout", "1s", to.String())
			}
			recoversWithout(w, "a flood of flows")
		})
	}
}

// recoversWithout is recovers where no name is left that is allowed.
func recoversWithout(w *rig.World, after string) {
	w.Helper()
	if !rig.Eventually(60*time.Second, func() bool { _, code := w.Status(); return code == 0 }) {
		s, _ := w.Status()
		w.Errorf("not healthy after %s: %v", after, s["why"])
	}
}

var _ = rig.Also(TestRevocationComesWithoutProcessorTime, rig.UnderStress)

// TestRevocationComesWithoutProcessorTime: the agent takes what time there is of the processors,
// of which the container has half of one, and has made a table of flows. It is cut off
// all the same.
func TestRevocationComesWithoutProcessorTime(t *testing.T) {
	w := rig.Confine(t, "ok.test:8443\n", lab.BoxOptions{})
	ok4, _ := rig.Named("ok.test")
	w.Works("resolve", "ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	w.Streaming(to)
	makeFlows(w, rig.Often(10000, 60000))
	w.Launch("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do while :; do :; done & done; wait")
	w.Limit("cpu", 50000)
	began := time.Now()
	w.Did("deny", "ok.test")
	ended(w, to, began)
	w.Blocked("tcp", "-timeout", "5s", to.String())
}
