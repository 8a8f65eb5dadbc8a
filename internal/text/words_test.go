package text

import "testing"

// TestCounted: one is not said as if it were many.
func TestCounted(t *testing.T) {
	for got, want := range map[string]string{
		Counted(0, "name", "names"):            "0 names",
		Counted(1, "query", "queries"):         "1 query",
		Counted(uint64(2), "query", "queries"): "2 queries",
		Times(1):                               "once",
		Times(uint64(3)):                       "3 times",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
