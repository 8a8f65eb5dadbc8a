package attack

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestGrantEndsWithoutKeeper: what was granted by address ends when its time comes,
// and what is under way there too, also where nobody is left to end it.
func TestGrantEndsWithoutKeeper(t *testing.T) {
	lab.Require(t)
	l := newLab(t)
	w := startIn(t, l, "ok.test\n45.30.9.9:8443\n", lab.BoxOptions{}, "sleep", "infinity")
	w.mode = "up"
	w.did("up", "--user", "1000")
	lasting, granted := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.10:8443")
	w.did("allow", "45.30.9.10:8443", "--for", "10s")
	began := time.Now()
	for _, to := range []netip.AddrPort{lasting, granted} {
		w.streaming(to)
	}
	w.keeper().signal(t, unix.SIGKILL)
	if alive := w.received(granted); !eventually(time.Until(began.Add(9*time.Second)), func() bool { return w.received(granted) > alive }) {
		t.Error("ends before its time")
	}
	time.Sleep(time.Until(began.Add(10 * time.Second))) // a busy machine may keep the stream from sending before
	if !eventually(time.Minute, func() bool {
		before := w.received(granted)
		time.Sleep(time.Second) // the stream sends ten times in that
		return w.received(granted) == before
	}) {
		t.Errorf("still streams %v after it was granted for 10s", time.Since(began))
	}
	w.blocked("tcp", "-timeout", "1s", granted.String())
	before := w.received(lasting)
	if !eventually(20*time.Second, func() bool { return w.received(lasting) > before }) {
		t.Error("what has no end has ended too")
	}
}
