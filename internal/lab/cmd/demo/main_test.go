package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLabDemo: the demo ends well, and fails where a line of it shows nothing: what
// was never possible was refused by nobody, and what works was not refused.
func TestLabDemo(t *testing.T) {
	lab.Require(t)
	if d := (&demo{agent: agent}); d.run() != 0 {
		t.Errorf("the demo failed: %q", d.failed)
	}
	const end = "echo 'the agent waits'"
	d := &demo{agent: bytes.Replace(agent, []byte(end),
		[]byte("mustnt 'never possible' no-such-program\nmustnt 'not refused' true\nmay 'not allowed' false\n"+end), 1)}
	if d.run() == 0 {
		t.Error("the demo did not fail")
	}
	all := strings.Join(d.failed, "\n")
	for _, want := range []string{`"never possible" does not work without agent-init either`, `"not refused" is allowed, and should be refused`,
		`"not allowed" is refused, and should be allowed`} {
		if !strings.Contains(all, want) {
			t.Errorf("it did not say: %s\nbut: %s", want, all)
		}
	}
}
