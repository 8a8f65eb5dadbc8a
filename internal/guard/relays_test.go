package guard

import "testing"

// TestRelays: connections leave descriptors for DNS, and a usual limit is none.
func TestRelays(t *testing.T) {
	for descriptors, want := range map[uint64]int{1 << 20: maxRelays, 1 << 62: maxRelays, 20000: maxRelays, 4096: 1728, 1024: 192, 256: 32, 64: 8, 0: 1} {
		if got := relays(descriptors); got != want {
			t.Errorf("%d descriptors: %d relays, want %d", descriptors, got, want)
		}
		if left := descriptors - 2*uint64(want); want > 1 && left < min(640, descriptors/2) {
			t.Errorf("%d descriptors: %d relays leave %d", descriptors, want, left)
		}
	}
}
