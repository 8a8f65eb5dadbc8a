package probe

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// TestTryAllInTurn: no more probes are under way than there is room for, all of them
// are tried, and each result stands where its probe does.
func TestTryAllInTurn(t *testing.T) {
	var now, most atomic.Int64
	probes := make([]probe, 5*atOnce)
	for i := range probes {
		probes[i] = probe{check: selftest.Check{Name: fmt.Sprint(i)}, timeout: time.Minute, run: func(context.Context) outcome {
			for n := now.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Millisecond)
			now.Add(-1)
			return outcome{got: selftest.Blocked}
		}}
	}
	for i, c := range tryAll(t.Context(), probes) {
		if c.Name != fmt.Sprint(i) || c.Got != selftest.Blocked {
			t.Errorf("probe %d: %+v", i, c)
		}
	}
	if m := most.Load(); m < 2 || m > atOnce {
		t.Errorf("%d were under way at once, want at most %d", m, atOnce)
	}
}
