package stage

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestBursts: memory is given back once after a burst, and not during one.
func TestBursts(t *testing.T) {
	const mib = 1 << 20
	b := Bursts{Calm: 8 * mib, Worth: 16 * mib}
	given := uint64(0)
	for i, second := range []struct {
		more uint64
		over bool
	}{{1 * mib, false}, {40 * mib, false}, {100 * mib, false}, {2 * mib, true}, {0, false}, {3 * mib, false}, {9 * mib, false}, {5 * mib, true}, {1 * mib, false}} {
		given += second.more
		if over := b.over(given, 60*mib); over != second.over {
			t.Errorf("second %d, %d bytes more: %v", i, second.more, over)
		}
	}
	for i, live := range []uint64{800 * mib, 400 * mib} { // 161 MiB are less and more than a quarter of it
		b := Bursts{Calm: 8 * mib, Worth: 16 * mib, last: given}
		if over := b.over(given, live); over != (i == 1) {
			t.Errorf("with %d bytes live: %v", live, over)
		}
	}
}

func TestHeap(t *testing.T) {
	before, _, collecting := heap()
	if !collecting {
		t.Error("the runtime collects, and is said not to")
	}
	kept := make([]byte, 1<<20)
	after, live, _ := heap()
	if got := after - before; got < 1<<20 {
		t.Errorf("%d bytes more for a MiB", got)
	}
	if live >= after {
		t.Errorf("%d bytes are live of %d that were given out", live, after)
	}
	runtime.KeepAlive(kept)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if _, _, collecting := heap(); collecting {
		t.Error("the runtime is said to collect, and does not")
	}
}
