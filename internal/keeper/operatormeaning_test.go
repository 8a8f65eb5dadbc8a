package keeper

import (
	"testing"
)

// TestMeaningOf: who grants an entry is told what its words open.
func TestMeaningOf(t *testing.T) {
	for target, want := range map[string]int{
		"foo.example": 0, "foo.example private connect": 2, "foo.example upgrade": 1, "10.0.0.0/8": 1, "10.0.0.0/8:53/udp": 1, "10.0.0.1:53/udp": 0, "foo.example:53/udp": 0,
		"foo.example GET /x websocket": 1, "foo.example observe": 1, "foo.example direct": 1, "foo.example GET /x": 0,
	} {
		if got := meaningOf(target); len(got) != want {
			t.Errorf("%s: %q", target, got)
		}
	}
}
