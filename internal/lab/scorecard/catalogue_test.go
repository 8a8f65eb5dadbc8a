package scorecard

import (
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

// catalogue reads the items of the catalogue: "- **E01** What is tried. What stops it
// (`TestNoTunnelOverOpenDNS`)."
func catalogue(t *testing.T, text string) (ids []string) {
	t.Helper()
	_, text, _ = strings.Cut(text, "\n## The catalogue\n")
	text, _, found := strings.Cut(text, "\n## ")
	if !found {
		t.Fatal("SECURITY.md has no catalogue")
	}
	item := regexp.MustCompile(`^\*\*([EXKPR][0-9]{2})\*\* `)
	for entry := range strings.SplitSeq(text, "\n- ") {
		m := item.FindStringSubmatch(entry)
		if m == nil {
			continue
		}
		entry, _, _ = strings.Cut(entry, "\n\n")
		if id := m[1]; !named.MatchString(entry) && id != "E76" {
			t.Errorf("%s names no test", id)
		}
		if strings.Count(entry, ". ")+strings.Count(entry, ".\n") < 1 {
			t.Errorf("%s does not say what stops it", m[1])
		}
		ids = append(ids, m[1])
	}
	slices.Sort(ids)
	if unique := slices.Compact(slices.Clone(ids)); len(unique) != len(ids) {
		t.Errorf("an attack stands in the catalogue twice: %v", ids)
	}
	return ids
}
