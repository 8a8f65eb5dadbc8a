package rig

import "testing"

// TestNarrow: where the environment names another place, what -run chooses is run as far as it is declared for there.
func TestNarrow(t *testing.T) {
	before := places
	defer func() { places = before }()
	places = map[string]place{"TestA": Everywhere, "TestB": InUp | UnderStress, "TestC": OverXtables}
	for _, c := range []struct {
		pattern string
		where   place
		want    string
	}{
		{"", InUp, "^(TestA|TestB)$"},
		{"", InSidecar, "^(TestA)$"},
		{"", InUp | OverXtables, "^(TestA)$"},
		{"^Test[BC]$/^sub$", OverXtables, "^(TestC)$/^sub$"},
		{"TestC", InUp, "^()$"},
	} {
		if got := narrow(c.pattern, c.where); got != c.want {
			t.Errorf("of %q, in %d, it chooses %q, want %q", c.pattern, c.where, got, c.want)
		}
	}
}
