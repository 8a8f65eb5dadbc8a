package grant

import (
	"testing"
	"time"
	"unsafe"
)

// apart is t on a machine whose wall clock is ahead of the monotonic one by so
// many whole seconds more than it was: it was set, or the machine has slept.
func apart(t *testing.T, at time.Time, seconds int64) time.Time {
	t.Helper()
	out := at
	// The layout of package time: seconds in bits 30 to 62, beside a flag that says
	// that there is a monotonic reading.
	*(*uint64)(unsafe.Pointer(&out)) += uint64(seconds << 30)
	if out.Sub(at) != 0 || out.Round(0).Sub(at.Round(0)) != time.Duration(seconds)*time.Second {
		t.Fatal("times are not laid out as this test thinks")
	}
	return out
}

// TestGrantClocks: a grant ends in time whatever happens to the wall clock, and
// also if the machine sleeps meanwhile, which the monotonic clock doesn't see.
func TestGrantClocks(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		at    time.Time
		ended bool
	}{
		"in time":                      {now.Add(9 * time.Minute), false},
		"over":                         {now.Add(10 * time.Minute), true},
		"clock set back":               {apart(t, now.Add(10*time.Minute), -3600), true},
		"slept for an hour":            {apart(t, now.Add(time.Minute), 3600), true},
		"clock set back, and not over": {apart(t, now.Add(9*time.Minute), -3600), false},
	} {
		var b Book
		if _, _, err := b.Put(Grant{Kind: Allow, Target: "a.example"}, 10*time.Minute, now); err != nil {
			t.Fatal(err)
		}
		if over := b.Expire(c.at); (len(over) > 0) != c.ended {
			t.Errorf("%s: ended %v, want %t", name, over, c.ended)
		}
	}
}
