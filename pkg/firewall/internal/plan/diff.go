package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxDiffs bounds how many differences an error tells.
const maxDiffs = 5

// Differ returns an error that tells the first of diffs, or nil.
func Differ(diffs []string) error {
	if len(diffs) == 0 {
		return nil
	}
	more := ""
	if n := len(diffs) - maxDiffs; n > 0 {
		diffs, more = diffs[:maxDiffs], fmt.Sprintf("; and %d more", n)
	}
	return errors.New("the kernel's rules are not the plan's: " + strings.Join(diffs, "; ") + more)
}

// SetsOf returns the sets of p by name.
func SetsOf(p Plan) map[string]Set {
	out := make(map[string]Set, len(p.Sets))
	for _, s := range p.Sets {
		out[s.Name] = s
	}
	return out
}

// SortedUnion returns the keys of a and b, each once.
func SortedUnion[A, B any](a map[string]A, b map[string]B) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// FirstDiff returns where a and b begin to differ.
func FirstDiff(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
