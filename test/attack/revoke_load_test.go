package attack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// flows is how many the kernel tracks.
func (w *world) flows() (n int) {
	w.Helper()
	_, err := fmt.Sscan(w.root("cat", "/proc/sys/net/netfilter/nf_conntrack_count").Stdout, &n)
	must(w.T, err)
	return n
}

// makeFlows has the agent make so many: to addresses that nothing allows, since what
// it sends to port 53 of any comes to the guard, and when no more of these can be told
// apart, to loopback.
func (w *world) makeFlows(n int) {
	w.Helper()
	const most = 60000 // from one port
	for left, at := n, 0; left > 0; left, at = left-most, at+1 {
		some, to := fmt.Sprint(min(left, most)), "45.100.0.1:53"
		if at > 0 {
			to = fmt.Sprintf("127.%d.0.1:9", 10+2*at)
		}
		w.launch("poke", "flood", "-n", some, "-spread", some, to).Wait(0)
	}
	if got := w.flows(); got < n*9/10 {
		w.Fatalf("proves nothing: %d flows, and %d were to be made", got, n)
	}
}

// streaming starts a connection of the agent's that sends all the time, and waits
// until it does.
func (w *world) streaming(to netip.AddrPort) *lab.Process {
	w.Helper()
	before := w.received(to)
	p := w.asAgent(w.box, "tcp", "-hold", "5m", "-oneway", to.String())
	if !eventually(20*time.Second, func() bool { return w.received(to) > before }) {
		w.Fatalf("no stream to %s: %s", to, p.Stdout())
	}
	return p
}

// ended fails the test if anything leaves for an address and port after this, and
// says when the last packet did.
func (w *world) ended(to netip.AddrPort, since time.Time) {
	w.Helper()
	returned := time.Now()
	for range 10 { // the stream sends ten times in that, if it does
		time.Sleep(100 * time.Millisecond)
	}
	last := since
	for _, p := range w.box.Packets(lab.Routed, lab.ToAddr(to.Addr().String()), func(p *lab.Packet) bool { return p.DstPort == to.Port() }) {
		if p.Time.After(last) {
			last = p.Time
		}
	}
	if last.After(returned) {
		w.Errorf("%v: something left %v after the change was made", to, last.Sub(returned))
	}
	w.Logf("%v: the command took %v, the last packet left after %v", to, returned.Sub(since), last.Sub(since))
}

var _ = also(TestRevocationIsQuickAmongManyFlows, underStress)

// TestRevocationIsQuickAmongManyFlows: how many flows the agent has made is no matter for the
// end of one: not for a denial, not for one that another change is ahead of, nor for
// a grant's end.
func TestRevocationIsQuickAmongManyFlows(t *testing.T) {
	for _, n := range often([]int{10000}, []int{0, 10000, 60000, 250000}) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := confine(t, "ok.test:8443\nok2.test:8443\n45.30.9.9:8443\n", lab.BoxOptions{})
			ok4, _ := named("ok.test")
			other4, _ := named("ok2.test")
			for _, name := range []string{"ok.test", "ok2.test"} {
				w.works("resolve", name)
			}
			first, second := netip.AddrPortFrom(ok4, 8443), netip.AddrPortFrom(other4, 8443)
			plain, granted := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.10:8443")
			w.did("allow", "45.30.9.10:8443", "--for", "1h")
			for _, to := range []netip.AddrPort{first, second, plain, granted} {
				w.streaming(to)
			}
			w.makeFlows(n)

			began := time.Now()
			w.did("deny", "ok.test")
			w.ended(first, began)

			// Two at once: neither waits for what the other has to end.
			began = time.Now()
			behind := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "deny", "45.30.9.9"}})
			w.did("deny", "ok2.test")
			if r := behind.Wait(time.Minute); r.Code != 0 {
				t.Error(r)
			}
			w.ended(second, began)
			w.ended(plain, began)

			var number string
			for _, g := range w.grants() {
				if strings.HasPrefix(g.Target, "45.30.9.10") {
					number = fmt.Sprint(g.Number)
				}
			}
			began = time.Now()
			w.did("grants", "--end", number)
			w.ended(granted, began)
			for _, to := range []netip.AddrPort{first, second, plain, granted} {
				w.blocked("tcp", "-timeout", "1s", to.String())
			}
			w.recoversWithout("a flood of flows")
		})
	}
}

// recoversWithout is recovers where no name is left that is allowed.
func (w *world) recoversWithout(after string) {
	w.Helper()
	if !eventually(60*time.Second, func() bool { _, code := w.status(); return code == 0 }) {
		s, _ := w.status()
		w.Errorf("not healthy after %s: %v", after, s["why"])
	}
}

var _ = also(TestRevocationComesWithoutProcessorTime, underStress)

// TestRevocationComesWithoutProcessorTime: the agent takes what time there is of the processors,
// of which the container has half of one, and has made a table of flows. It is cut off
// all the same.
func TestRevocationComesWithoutProcessorTime(t *testing.T) {
	w := confine(t, "ok.test:8443\n", lab.BoxOptions{})
	ok4, _ := named("ok.test")
	w.works("resolve", "ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	w.streaming(to)
	w.makeFlows(often(10000, 60000))
	w.launch("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do while :; do :; done & done; wait")
	w.limit("cpu", 50000)
	began := time.Now()
	w.did("deny", "ok.test")
	w.ended(to, began)
	w.blocked("tcp", "-timeout", "5s", to.String())
}
