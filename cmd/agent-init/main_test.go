package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestSurplusArguments: what a command would ignore is said to be wrong, and what it lacks.
func TestSurplusArguments(t *testing.T) {
	n := 0
	for _, c := range commands() {
		refuses := func(number int, given string) {
			n++
			code, out, errs := typed(append([]string{c.name}, slices.Repeat([]string{"surplus"}, number)...)...)
			told := strings.Contains(errs, "; given: "+given) && strings.Contains(errs, "remedy: agent-init "+c.name)
			if code != fault.Usage || out != "" || !told {
				t.Errorf("%s: exit code %d\n%s%s", c.name, code, out, errs)
			}
		}
		if c.most >= 0 {
			refuses(c.most+1, `"surplus"`)
		}
		if c.least > 0 {
			refuses(0, "none\n")
		}
	}
	if n < 40 {
		t.Errorf("only %d were tried", n)
	}
}
