package firewall

import (
	"fmt"
	"slices"
	"time"
)

// What is allowed for a time is in sets of their own, one for each end and family,
// whose elements the kernel takes out by itself: also where whoever granted it has been
// killed since. Nothing puts such an element elsewhere, so what is under way ends as well.

// addGranted adds those sets.
func (b *builder) addGranted() error {
	by := map[int64][]Entry{}
	for _, g := range b.Granted {
		by[g.Until.UnixMilli()] = append(by[g.Until.UnixMilli()], g.Entry)
	}
	ends := make([]int64, 0, len(by))
	for end := range by {
		ends = append(ends, end)
	}
	slices.Sort(ends)
	for _, end := range ends {
		boxes, err := boxesOf(by[end], false)
		if err != nil {
			return fmt.Errorf("granted: %w", err)
		}
		for _, f := range families() {
			mine := disjoint(ofFamily(boxes, f))
			if len(mine) == 0 {
				continue
			}
			s := set{name: hashed("timed", f, mine, end), family: f, kind: static, boxes: mine, until: time.UnixMilli(end)}
			b.plan.sets = append(b.plan.sets, s)
			b.granted[f] = append(b.granted[f], s.name)
		}
	}
	return nil
}

// allowed are the names of the sets that anyone may reach, and what is in none of the
// kernel's making.
func (b *builder) allowed(f family) []string {
	var out []string
	if s, ok := b.allow[f]; ok {
		out = append(out, s)
	}
	return append(out, b.granted[f]...)
}

// left is how long an element of s has yet; 0 if it doesn't end.
func (s set) left() time.Duration {
	if s.until.IsZero() {
		return 0
	}
	return max(time.Until(s.until), time.Millisecond)
}

// ending says whether elements of s may be gone by themselves, or be about to.
func (s set) ending() bool { return !s.until.IsZero() && time.Until(s.until) < lastMoment }

// lastMoment is by how much the kernel's clock may differ, and what takes its time.
const lastMoment = 2 * time.Second
