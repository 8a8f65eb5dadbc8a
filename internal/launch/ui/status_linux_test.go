package ui

import (
	"encoding/json"
	"testing"

	"github.com/agent-init/agent-init/internal/state"
)

// TestWhyItIsIll: the page shows what status says of a container that is not healthy, though the command ends with 1.
func TestWhyItIsIll(t *testing.T) {
	r := newRig(t)
	ill := state.Report{Why: []string{"the guard is down", "the rules are gone"}, State: &state.State{Phase: state.PhaseReady, Mode: "up"}}
	printed, err := json.Marshal(ill)
	if err != nil {
		t.Fatal(err)
	}
	r.put(one+".status", string(printed))
	r.enter()
	for _, c := range r.fleet().Containers {
		if c.ID == one && (!c.Known || c.Healthy || c.Fault != "" || c.Why != "the guard is down; the rules are gone" || c.Phase != "ready" || c.Mode != "up") {
			t.Errorf("the page is shown %+v", c)
		}
	}
}
