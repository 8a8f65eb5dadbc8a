package state

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/policy"
)

// TestSizeOf: one rule is not said as if it were many.
func TestSizeOf(t *testing.T) {
	for got, want := range map[string]string{
		SizeOf(policy.Counts{Names: 2, Addresses: 1}):  "2 names, 0 wildcards, 1 address, 0 denied",
		SizeOf(policy.Counts{Wildcards: 1, Denied: 1}): "0 names, 1 wildcard, 0 addresses, 1 denied",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
