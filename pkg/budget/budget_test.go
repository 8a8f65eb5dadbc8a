package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWildcardLimit(t *testing.T) {
	w := NewBudget()
	now := time.Now()
	allowed := func(names ...string) (n int) {
		for _, name := range names {
			if w.Take("cdn.test", name, 10, now) {
				n++
			}
		}
		return n
	}
	many := func(prefix string, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%s%d.cdn.test", prefix, i))
		}
		return out
	}
	if n := allowed(many("a", 20)...); n != 10 {
		t.Errorf("%d of 20 names at once, want 10", n)
	}
	if n := allowed(many("a", 10)...); n != 10 {
		t.Errorf("%d of 10 known names", n)
	}
	now = now.Add(30 * time.Second)
	if n := allowed(many("b", 20)...); n != 5 {
		t.Errorf("%d new names after half a minute, want 5", n)
	}
	now = now.Add(24 * time.Hour)
	if n := allowed(many(strings.Repeat("x", oddLabel), 20)...); n != 10/OddWeight {
		t.Errorf("%d odd names, want %d", n, 10/OddWeight)
	}
	for range 10 * knownNames {
		now = now.Add(time.Minute)
		allowed(many(fmt.Sprint(now.Unix(), "-"), 10)...)
	}
	if z := w.zones["cdn.test"]; len(z.known)+len(z.before) > 2*knownNames {
		t.Errorf("%d names are remembered", len(z.known)+len(z.before))
	}
}

func TestWeight(t *testing.T) {
	for name, want := range map[string]float64{
		"www.cdn.test":                              1,
		"r3---sn-4g5ednsz.googlevideo.test":         1,
		strings.Repeat("a", 50) + ".test":           1,
		strings.Repeat("a", 51) + ".test":           OddWeight,
		strings.Repeat("abcdefghi.", 10) + "a":      OddWeight,
		strings.Repeat("abcdefghi.", 9) + "abcdefg": 1,
	} {
		if got := weight(name); got != want {
			t.Errorf("%s weighs %v, want %v", name, got, want)
		}
	}
}

// TestBudgetAgain: known names are no free codebook: which of them is asked for
// counts too.
func TestBudgetAgain(t *testing.T) {
	w, now := NewBudget(), time.Unix(1000, 0)
	const perMinute = 10
	for i := range perMinute {
		if !w.Take("cdn.test", string(rune('a'+i))+".cdn.test", perMinute, now) {
			t.Fatal(i)
		}
	}
	asked := 0
	for range 100 * perMinute {
		if w.Take("cdn.test", "a.cdn.test", perMinute, now) {
			asked++
		}
	}
	if asked != AgainPerNew*perMinute {
		t.Errorf("a known name was asked for %d times, want %d", asked, AgainPerNew*perMinute)
	}
	if !w.Has("cdn.test", "a.cdn.test", perMinute, now) || w.Has("cdn.test", "z.cdn.test", perMinute, now) {
		t.Error("what is known is not told from what is new")
	}
	if !w.Take("cdn.test", "b.cdn.test", perMinute, now.Add(time.Minute)) {
		t.Error("after a minute nothing has come back")
	}
}
