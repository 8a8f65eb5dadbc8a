package plan

import (
	"slices"
	"testing"
)

// TestSamples: the rules that are left have all that the others had, and are few.
func TestSamples(t *testing.T) {
	full, err := Probe("", false)
	if err != nil {
		t.Fatal(err)
	}
	kinds := func(p Plan) (out []string, rules int) {
		for _, c := range p.Chains {
			rules += len(c.Rules)
			for _, r := range c.Rules {
				out = append(out, r.kinds()...)
			}
		}
		slices.Sort(out)
		return slices.Compact(out), rules
	}
	all, before := kinds(full)
	full.Samples()
	some, after := kinds(full)
	if !slices.Equal(all, some) {
		t.Errorf("of %q\nthere are left %q", all, some)
	}
	if after*2 > before {
		t.Errorf("%d of %d rules are left", after, before)
	}
	t.Logf("%d of %d rules, %d kinds", after, before, len(all))
}
