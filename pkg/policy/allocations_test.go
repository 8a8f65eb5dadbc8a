package policy

import (
	"fmt"
	"strings"
	"testing"
)

// longList makes a list of n lines of all kinds.
func longList(n int) *Bundle {
	var b strings.Builder
	for i := range n {
		switch i % 10 {
		case 0:
			fmt.Fprintf(&b, "*.wild-%d.example.com\n", i)
		case 1:
			fmt.Fprintf(&b, "host-%d.corp.example:8443 private  # a comment\n", i)
		case 2:
			fmt.Fprintf(&b, "10.%d.%d.%d:443\n", i>>16&255, i>>8&255, i&255)
		case 3:
			fmt.Fprintf(&b, "!bad-%d.example.net\n", i)
		default:
			fmt.Fprintf(&b, "host-%d.region-%d.example.org\n", i, i%7)
		}
	}
	return &Bundle{Files: []File{{Name: "allowlist.txt", Data: []byte(b.String())}}}
}

// TestParseAllocations holds what a plain entry costs to read: whatever looks for faults in it does so when it is one.
func TestParseAllocations(t *testing.T) {
	const lines = 1000
	bundle := longList(lines)
	each := testing.AllocsPerRun(5, func() {
		if _, err := Parse(bundle, nil); err != nil {
			t.Fatal(err)
		}
	}) / lines
	if each > 4 {
		t.Errorf("%.1f allocations for an entry", each)
	}
}
