package policy

import "testing"

// TestRootIn: whom a mounted file has to belong to on the host.
func TestRootIn(t *testing.T) {
	for uidMap, want := range map[string]string{
		"         0          0 4294967295\n":            "",
		"         0     200000      65536\n":            "200000",
		"      1000       1000          1\n0 5000 1000": "5000",
		"":  "",
		"0": "",
	} {
		if got := rootIn(uidMap); got != want {
			t.Errorf("%q: %q, want %q", uidMap, got, want)
		}
	}
}
