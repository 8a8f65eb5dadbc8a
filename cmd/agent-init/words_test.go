package main

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/policy"
)

// TestCounted: one is not said as if it were many.
func TestCounted(t *testing.T) {
	for got, want := range map[string]string{
		counted(0, "name", "names"):                    "0 names",
		counted(1, "query", "queries"):                 "1 query",
		counted(uint64(2), "query", "queries"):         "2 queries",
		times(1):                                       "once",
		times(uint64(3)):                               "3 times",
		sizeOf(policy.Counts{Names: 2, Addresses: 1}):  "2 names, 0 wildcards, 1 address, 0 denied",
		sizeOf(policy.Counts{Wildcards: 1, Denied: 1}): "0 names, 1 wildcard, 0 addresses, 1 denied",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
