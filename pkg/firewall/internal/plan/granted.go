package plan

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
		for _, f := range Families() {
			mine := disjoint(ofFamily(boxes, f))
			if len(mine) == 0 {
				continue
			}
			s := Set{Name: hashed("timed", f, mine, end), Family: f, Kind: Static, Boxes: mine, Until: time.UnixMilli(end)}
			b.plan.Sets = append(b.plan.Sets, s)
			b.granted[f] = append(b.granted[f], s.Name)
		}
	}
	return nil
}

// allowed are the names of the sets that anyone may reach, and what is in none of the
// kernel's making.
func (b *builder) allowed(f Family) []string {
	var out []string
	if s, ok := b.allow[f]; ok {
		out = append(out, s)
	}
	return append(out, b.granted[f]...)
}

// Left is how long an element of s has yet; 0 if it doesn't end.
func (s Set) Left() time.Duration {
	if s.Until.IsZero() {
		return 0
	}
	return max(time.Until(s.Until), time.Millisecond)
}

// Ending says whether elements of s may be gone by themselves, or be about to.
func (s Set) Ending() bool { return !s.Until.IsZero() && time.Until(s.Until) < lastMoment }

// lastMoment is by how much the kernel's clock may differ, and what takes its time.
const lastMoment = 2 * time.Second
