package main

import "testing"

// TestCounted: one is not said as if it were many.
func TestCounted(t *testing.T) {
	for got, want := range map[string]string{
		counted(0, "name", "names"):            "0 names",
		counted(1, "query", "queries"):         "1 query",
		counted(uint64(2), "query", "queries"): "2 queries",
		times(1):                               "once",
		times(uint64(3)):                       "3 times",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
