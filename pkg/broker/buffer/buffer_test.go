package buffer

import "testing"

// TestFit: a stream that fills its buffer gets a large one, until it is slow again. There are so many, and no more.
func TestFit(t *testing.T) {
	all := make([]Buffer, maxLarge+1)
	for i := range all {
		all[i].Fit(Small-1, false)
		if len(all[i].Bytes()) != Small {
			t.Fatal("one that is slow has a large one")
		}
		all[i].Fit(Small, true)
		if large := len(all[i].Bytes()) == Large; large != (i < maxLarge) {
			t.Fatalf("the %d. has a large one: %t", i, large)
		}
	}
	all[0].Fit(Large, true)
	all[1].Fit(Small-1, false)
	all[2].Free()
	all[3].Fit(Small, false)
	for i, want := range []int{Large, Small, Small, Large} {
		if got := len(all[i].Bytes()); got != want {
			t.Errorf("the %d. has %d bytes, want %d", i, got, want)
		}
	}
	all[maxLarge].Fit(Small, true)
	if len(all[maxLarge].Bytes()) != Large {
		t.Error("what was given back is lost")
	}
	for i := range all {
		all[i].Free()
	}
	if len(turns) != 0 {
		t.Errorf("%d are not given back", len(turns))
	}
}
