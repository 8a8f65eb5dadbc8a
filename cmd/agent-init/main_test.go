package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestSurplusArguments: what a command would ignore is said to be wrong.
func TestSurplusArguments(t *testing.T) {
	n := 0
	for _, c := range commands() {
		if !c.alone {
			continue
		}
		n++
		var out, errs bytes.Buffer
		code := run(environment{args: []string{c.name, "surplus"}, stdin: os.Stdin, stdout: &out, stderr: &errs})
		if code != fault.Usage || out.Len() > 0 || !strings.Contains(errs.String(), `"surplus" was given`) || !strings.Contains(errs.String(), "remedy: agent-init "+c.name) {
			t.Errorf("%s: exit code %d\n%s%s", c.name, code, &out, &errs)
		}
	}
	if n < 11 {
		t.Errorf("%d commands take no arguments", n)
	}
}
