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
		if over := b.over(given); over != second.over {
			t.Errorf("second %d, %d bytes more: %v", i, second.more, over)
		}
	}
}

func TestHeap(t *testing.T) {
	before, collecting := heap()
	if !collecting {
		t.Error("the runtime collects, and is said not to")
	}
	kept := make([]byte, 1<<20)
	after, _ := heap()
	if got := after - before; got < 1<<20 {
		t.Errorf("%d bytes more for a MiB", got)
	}
	runtime.KeepAlive(kept)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if _, collecting := heap(); collecting {
		t.Error("the runtime is said to collect, and does not")
	}
}
