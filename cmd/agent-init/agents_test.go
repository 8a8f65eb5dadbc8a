package main

import (
	"bytes"
	"io"
	"testing"
)

// TestAgentNamed: what a command about one agent proposes is about that one as well.
func TestAgentNamed(t *testing.T) {
	for _, c := range []struct{ agent, says, want string }{
		{"", "agent-init allow ok.test", "agent-init allow ok.test"},
		{"beta", "to allow it: agent-init allow ok.test --for 10m; see agent-init grants", "to allow it: agent-init allow --agent beta ok.test --for 10m; see agent-init grants --agent beta"},
		{"beta", "agent-init status --agent alpha, agent-init gateway --inside eth1", "agent-init status --agent alpha, agent-init gateway --inside eth1"},
	} {
		var out bytes.Buffer
		err := environment{agent: c.agent}.naming(&out, "", func(w io.Writer) error {
			_, err := io.WriteString(w, c.says)
			return err
		})
		if err != nil || out.String() != c.want {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}
