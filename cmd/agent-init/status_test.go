package main

import (
	"strings"
	"testing"
)

// TestSettled: wait ends when it is known how this start went, and not by how the one
// before went.
func TestSettled(t *testing.T) {
	gone, before := process{PID: self().PID, Start: 1}, process{PID: 1, Start: 1}
	for name, c := range map[string]struct {
		state         state
		settled, well bool
	}{
		"ready":                       {state{Phase: phaseReady, Keeper: self()}, true, true},
		"starting":                    {state{Phase: phaseStarting, Keeper: self()}, false, false},
		"failed, and still there":     {state{Phase: phaseFailed, Keeper: self()}, true, false},
		"failed, in the background":   {state{Phase: phaseFailed, Keeper: gone}, true, false},
		"unconfined":                  {state{Phase: phaseOpen, Keeper: self()}, true, false},
		"was ready":                   {state{Phase: phaseReady, Keeper: gone}, false, false},
		"ready before a restart":      {state{Phase: phaseReady, Keeper: before}, false, false},
		"failed before a restart":     {state{Phase: phaseFailed, Keeper: before}, false, false},
		"unconfined before a restart": {state{Phase: phaseOpen, Keeper: before}, false, false},
	} {
		if settled, err := c.state.settled(); settled != c.settled || c.settled && (err == nil) != c.well {
			t.Errorf("%s: %v, %v", name, settled, err)
		}
	}
}

// TestStatusUnproved: without a self-test nothing is said to be proved.
func TestStatusUnproved(t *testing.T) {
	s := goldenState()
	for proof, want := range map[*selfTestState]string{
		s.SelfTest: "confined and healthy\n",
		nil:        "confined and healthy, but not proved: no self-test was run\n",
	} {
		s.SelfTest = proof
		var out strings.Builder
		s.write(&out, true, nil, false)
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("want %q of\n%s", want, out.String())
		}
	}
}
