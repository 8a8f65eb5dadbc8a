package budget

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	p := &Pace{Burst: 3, Every: time.Second}
	now, passed := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), 0
	for range 10 {
		if p.Take(now) {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d of 10 passed at once", passed)
	}
	passed = 0
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		if p.Take(now) {
			passed++
		}
	}
	if passed < 9 || passed > 11 {
		t.Errorf("%d passed in 10 s", passed)
	}
}

// TestBucketOwe: what was taken beyond what there was is waited for, and over a long time no more is had than flows in.
func TestBucketOwe(t *testing.T) {
	var b Bucket
	begun := time.Unix(1000, 0)
	const rate, full = 0.01, 0.1
	took := 0.0
	for tick := range 1000 {
		if now := begun.Add(time.Duration(tick) * 100 * time.Millisecond); b.Left(now, rate, full) {
			b.Owe(0.25)
			took += 0.25
		}
	}
	if most := full + 100*rate + 0.25; took > most || took < most-0.5 {
		t.Errorf("took %v in 100 seconds, want at most %v", took, most)
	}
	if b.Left(begun.Add(100*time.Second), rate, full) || !b.Left(begun.Add(200*time.Second), rate, full) {
		t.Error("a debt is not waited for, or for ever")
	}
}
