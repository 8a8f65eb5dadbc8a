package main

import (
	"testing"
	"time"
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

// TestStatusClocks: a state that is not published any more shows as such, also
// where the clock of the reader says that it is from the future.
func TestStatusClocks(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		published time.Time
		healthy   bool
	}{
		"just now":                      {now, true},
		"at the last look":              {now.Add(-attestEvery), true},
		"too long ago":                  {now.Add(-time.Minute), false},
		"before the clock was set back": {now.Add(time.Hour), false},
		"by another clock, nearly":      {now.Add(time.Second), true},
	} {
		s := state{Phase: phaseReady, Keeper: self(), Published: c.published.Round(0), Guard: guardState{OK: true}}
		if ok, why := s.healthy(now); ok != c.healthy {
			t.Errorf("%s: healthy is %t: %v", name, ok, why)
		}
	}
}

// TestStatusAudit: who loses events is not healthy.
func TestStatusAudit(t *testing.T) {
	s := state{Phase: phaseReady, Keeper: self(), Published: time.Now(), Guard: guardState{OK: true}, Audit: auditState{Fault: "disk full"}}
	if ok, why := s.healthy(time.Now()); ok || len(why) != 1 {
		t.Errorf("healthy is %t: %v", ok, why)
	}
}
