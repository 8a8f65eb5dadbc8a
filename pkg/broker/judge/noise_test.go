package judge

import (
	"math/rand/v2"
	"testing"
)

// TestMayOverride: what is quickly taken for no name that changes the method is none.
func TestMayOverride(t *testing.T) {
	const letters = "mMtThHoOdDpPeE-_ .%6d[]$x+\x00"
	r := rand.New(rand.NewPCG(1, 2))
	quick := 0
	for range 100_000 {
		b := make([]byte, r.IntN(12))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		if !mayOverride(string(b)) {
			quick++
			if isOverride(string(b)) {
				t.Fatalf("%q", b)
			}
		}
	}
	for _, name := range []string{"_method", "%5fmethod", "_Me%74hod", "[_METHOD]", "x.http.method", "$httpHeaders", "%zz_method"} {
		if !overrides(name) {
			t.Errorf("%q is passed over", name)
		}
	}
	if quick < 10_000 {
		t.Errorf("only %d were quick", quick)
	}
}
