package grants

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestGrantEndsWithoutKeeper: what was granted by address ends when its time comes,
// and what is under way there too, also where nobody is left to end it.
func TestGrantEndsWithoutKeeper(t *testing.T) {
	lab.Require(t)
	l := rig.NewLab(t)
	w := rig.StartIn(t, l, "ok.test\n45.30.9.9:8443\n", lab.BoxOptions{}, "sleep", "infinity")
	w.Mode = "up"
	w.Did("up", "--user", "1000")
	lasting, granted := netip.MustParseAddrPort("45.30.9.9:8443"), netip.MustParseAddrPort("45.30.9.10:8443")
	w.Did("allow", "45.30.9.10:8443", "--for", "10s")
	began := time.Now()
	for _, to := range []netip.AddrPort{lasting, granted} {
		w.Streaming(to)
	}
	w.Keeper().Signal(t, unix.SIGKILL)
	if alive := w.Received(granted); !rig.Eventually(time.Until(began.Add(9*time.Second)), func() bool { return w.Received(granted) > alive }) {
		t.Error("ends before its time")
	}
	time.Sleep(time.Until(began.Add(10 * time.Second))) // a busy machine may keep the stream from sending before
	if !rig.Eventually(time.Minute, func() bool {
		before := w.Received(granted)
		time.Sleep(time.Second) // the stream sends ten times in that
		return w.Received(granted) == before
	}) {
		t.Errorf("still streams %v after it was granted for 10s", time.Since(began))
	}
	w.Blocked("tcp", "-timeout", "1s", granted.String())
	before := w.Received(lasting)
	if !rig.Eventually(20*time.Second, func() bool { return w.Received(lasting) > before }) {
		t.Error("what has no end has ended too")
	}
}
