package grant

import (
	"testing"
	"time"
)

// TestOnlyCuts: what takes away and opens nothing is told from all else.
func TestOnlyCuts(t *testing.T) {
	var old Book
	allowed, _ := mustPut(t, &old, Allow, "a.test", time.Hour)
	denied, _ := mustPut(t, &old, Deny, "d.test", 0)
	for _, c := range []struct {
		name   string
		change func(b *Book)
		want   bool
	}{
		{"nothing", func(*Book) {}, false},
		{"a denial", func(b *Book) { mustPut(t, b, Deny, "b.test", 0) }, true},
		{"a denial of what was allowed", func(b *Book) { mustPut(t, b, Deny, "a.test", 0) }, true},
		{"a denial again", func(b *Book) { mustPut(t, b, Deny, "d.test", time.Hour) }, false},
		{"the end of a grant", func(b *Book) { b.End(allowed.Number, Decision{}) }, true},
		{"the end of a denial", func(b *Book) { b.End(denied.Number, Decision{}) }, false},
		{"the end of both", func(b *Book) { b.End(denied.Number, Decision{}); b.End(allowed.Number, Decision{}) }, false},
		{"a grant", func(b *Book) { mustPut(t, b, Allow, "b.test", time.Hour) }, false},
		{"a grant of what was denied", func(b *Book) { mustPut(t, b, Allow, "d.test", time.Hour) }, false},
		{"a grant for longer", func(b *Book) { mustPut(t, b, Allow, "a.test", 2*time.Hour) }, false},
		{"a grant and a denial", func(b *Book) { mustPut(t, b, Allow, "b.test", time.Hour); mustPut(t, b, Deny, "c.test", 0) }, false},
	} {
		next := old.Clone()
		c.change(&next)
		if got := next.OnlyCuts(old); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
