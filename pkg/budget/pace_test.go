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
