package guard

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/policy"
)

// TestAdded: after a change, what is resolved ahead is what the policy before did not have, or had otherwise.
func TestAdded(t *testing.T) {
	parse := func(list string) *policy.Policy {
		p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "list.txt", Data: []byte(list)}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	since := parse("same.test\nport.test\nword.test\ndenied.test\n!denied.test\ngone.test\n*.wild.test\n")
	now := parse("new.test\nsame.test\nport.test\nport.test:8443\nword.test private\ndenied.test\nx.wild.test\n*.wild.test\n")
	got := map[string]bool{}
	for _, r := range added(now, since) {
		got[r.Name] = true
	}
	for name, want := range map[string]bool{"new.test": true, "same.test": false, "port.test": true, "word.test": true, "denied.test": true, "gone.test": false, "x.wild.test": true} {
		if got[name] != want {
			t.Errorf("%s: %v", name, got[name])
		}
	}
	if all := added(now, nil); len(all) != len(now.Names) {
		t.Errorf("without one before: %d of %d", len(all), len(now.Names))
	}
}
