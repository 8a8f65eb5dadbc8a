package attack

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLabX03SuggestThroughLink: root writes suggestions, whose names the agent
// has chosen, to a file in the workspace. The agent has planted a link there that
// leads to the policy, which is taken over as soon as it changes.
func TestLabX03SuggestThroughLink(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	w.poke("resolve", "evil.test")
	w.audited("the refusal", func(e event) bool { return e.Kind == "dns" && e.Name == "evil.test" })
	if r := w.script(`cd /workspace && ln -s /etc/agent-init/allowlist.txt a && ln -s /etc/agent-init b && mkfifo c && touch d && ln d e`); r.Code != 0 {
		t.Fatalf("%s", r)
	}
	for _, path := range []string{"/workspace/a", "/workspace/b/allowlist.txt", "/workspace/b/../agent-init/allowlist.txt", "/workspace/c", "/workspace/e"} {
		if r := w.root("agent-init", "suggest", "--write", path); r.Code == 0 || r.TimedOut {
			t.Errorf("written to %s: %s", path, r)
		}
	}
	if data, err := w.box.ReadFile("/etc/agent-init/allowlist.txt"); err != nil || string(data) != allowlist {
		t.Errorf("the policy is now %q, %v", data, err)
	}
	w.blocked("resolve", "evil.test")
	w.unasked("evil.test")
	// A file that is none of these is fine.
	if r := w.root("agent-init", "suggest", "--write", "/tmp/f"); r.Code != 0 {
		t.Errorf("a new file: %s", r)
	}
	if data, err := w.box.ReadFile("/tmp/f"); err != nil || !strings.Contains(string(data), "evil.test") {
		t.Errorf("the file holds %q, %v", data, err)
	}
}
