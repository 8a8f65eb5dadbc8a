package stage

import (
	"runtime"
	"testing"
)

// TestBursts: memory is given back once after a burst, not during one, and not for what streams take.
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

func TestGivenOut(t *testing.T) {
	before := givenOut()
	kept := make([]byte, 1<<20)
	if got := givenOut() - before; got < 1<<20 {
		t.Errorf("%d bytes more for a MiB", got)
	}
	runtime.KeepAlive(kept)
}
