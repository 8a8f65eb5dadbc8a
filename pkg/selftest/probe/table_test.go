package probe

import (
	"bytes"
	"strings"
	"testing"
)

// The table of a good run, as people see it.
func TestKernelTable(t *testing.T) {
	p := testPlan()
	newWorld(t, p)
	serveGuard(t, p)
	var b bytes.Buffer
	if err := runChild(t, p, nobody).WriteTable(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TCP to public addresses, IPv4 (12)", "TCP to public addresses, IPv6 (8)", "ICMP echo, IPv6 (2)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if lines := strings.Count(b.String(), "\n"); lines > 25 {
		t.Errorf("%d lines", lines)
	}
}
