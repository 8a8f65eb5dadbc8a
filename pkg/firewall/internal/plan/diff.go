package plan

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Diff is how the kernel differs from a plan, in words.
type Diff []string

// maxDiffs bounds how many differences an error tells.
const maxDiffs = 5

func (d *Diff) Note(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

// Err returns an error that tells the first differences, or nil.
func (d Diff) Err() error {
	if len(d) == 0 {
		return nil
	}
	more := ""
	if n := len(d) - maxDiffs; n > 0 {
		d, more = d[:maxDiffs], fmt.Sprintf("; and %d more", n)
	}
	return errors.New("the kernel's rules are not the plan's: " + strings.Join(d, "; ") + more)
}

// Names notes which of what there should be are gone, and which foreign, and returns the
// others in order.
func (d *Diff) Names(what string, got, want iter.Seq[string]) (both []string) {
	there, wanted := slices.Collect(got), slices.Collect(want)
	for _, name := range ordered(append(slices.Clip(there), wanted...), strings.Compare) {
		switch {
		case !slices.Contains(there, name):
			d.Note("%s %s is gone", what, name)
		case !slices.Contains(wanted, name):
			d.Note("%s %s is foreign", what, name)
		default:
			both = append(both, name)
		}
	}
	return both
}

// Chains compares the rules of chains, where where says.
func (d *Diff) Chains(where string, got, want map[string][]string) {
	for _, name := range d.Names(where+"chain", maps.Keys(got), maps.Keys(want)) {
		g, w := got[name], want[name]
		if slices.Equal(g, w) {
			continue
		}
		i := 0
		for i < min(len(g), len(w)) && g[i] == w[i] {
			i++
		}
		d.Note("%schain %s has other rules (%d, not %d; first difference at rule %d)", where, name, len(g), len(w), i+1)
	}
}

// Elements notes how many of a static set's elements are missing, and how many too many.
func (d *Diff) Elements(name string, of Set, missing, extra int) {
	if missing > 0 && !of.Ending() || extra > 0 {
		d.Note("set %s lacks %d elements and has %d foreign ones", name, missing, extra)
	}
}
