package attack

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// refused fails the test unless agent-init ended with code, gave one line of
// cause that says all of texts and one of remedy, and started nothing: the
// command would have said "started".
func refused(t *testing.T, r lab.Result, code int, texts ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("ended with %d, want %d: %s", r.Code, code, r)
	}
	if strings.Contains(r.Stdout, "started") {
		t.Errorf("the agent was started: %s", r)
	}
	cause, remedy := "", ""
	for line := range strings.Lines(r.Stderr) {
		if strings.HasPrefix(line, "agent-init: ") {
			cause += line
		}
		if strings.HasPrefix(line, "  remedy: ") {
			remedy += line
		}
	}
	if strings.Count(cause, "\n") != 1 || strings.Count(remedy, "\n") != 1 || strings.TrimSpace(remedy) == "remedy:" {
		t.Errorf("not one cause and one remedy: %s", r)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("does not say %q: %s", text, r)
		}
	}
}

// refusedWith is refused with whatever code and texts.
func refusedWith(t *testing.T, r lab.Result) {
	t.Helper()
	refused(t, r, r.Code)
}
