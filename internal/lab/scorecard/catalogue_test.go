package scorecard

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCatalogue: each attack of SECURITY.md's catalogue is a line of the table, or
// is said not to be one, and why; and docs/scorecard.md has them all.
func TestCatalogue(t *testing.T) {
	text, err := os.ReadFile("../../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../../docs/scorecard.md")
	if err != nil {
		t.Fatal(err)
	}
	want := catalogue(t, string(text))
	if len(want) < 76+59 {
		t.Errorf("the catalogue has only %d attacks", len(want))
	}
	have := map[string]int{}
	for _, a := range Attacks() {
		have[a.ID]++
	}
	for _, o := range Elsewhere() {
		if o.Why == "" {
			t.Errorf("%v: no reason", o.IDs)
		}
		for _, id := range o.IDs {
			have[id]++
		}
	}
	for _, id := range want {
		if have[id] != 1 {
			t.Errorf("%s of the catalogue is in the scorecard %d times", id, have[id])
		}
		if !regexp.MustCompile(`\b` + id + `\b`).Match(document) {
			t.Errorf("docs/scorecard.md does not have %s: make scorecard", id)
		}
		delete(have, id)
	}
	for id := range have {
		t.Errorf("%s is not in SECURITY.md's catalogue", id)
	}
}

// catalogue reads the first column of the catalogue's table: "E43–E50, E52".
func catalogue(t *testing.T, text string) (ids []string) {
	t.Helper()
	_, text, _ = strings.Cut(text, "\n## The catalogue\n")
	text, _, found := strings.Cut(text, "\n## ")
	if !found {
		t.Fatal("SECURITY.md has no catalogue")
	}
	row := regexp.MustCompile(`(?m)^\| ([EX][0-9]{2}[^|]*) \|`)
	span := regexp.MustCompile(`^([EX])([0-9]{2})(?:–[EX]([0-9]{2}))?$`)
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		for part := range strings.SplitSeq(m[1], ", ") {
			s := span.FindStringSubmatch(part)
			if s == nil {
				t.Fatalf("%q is no number of an attack", part)
			}
			var first, last int
			_, _ = fmt.Sscan(strings.TrimLeft(s[2], "0"), &first)
			if last = first; s[3] != "" {
				_, _ = fmt.Sscan(strings.TrimLeft(s[3], "0"), &last)
			}
			for n := first; n <= last; n++ {
				ids = append(ids, fmt.Sprintf("%s%02d", s[1], n))
			}
		}
	}
	slices.Sort(ids)
	if unique := slices.Compact(slices.Clone(ids)); len(unique) != len(ids) {
		t.Errorf("an attack stands in the catalogue twice: %v", ids)
	}
	return ids
}
