package state

import (
	"testing"
	"time"
)

// TestSettled: wait ends when it is known how this start went, and not by how the one
// before went.
func TestSettled(t *testing.T) {
	gone, before := process{PID: Self().PID, Start: 1}, process{PID: 1, Start: 1}
	for name, c := range map[string]struct {
		state         State
		settled, well bool
	}{
		"ready":                       {State{Phase: PhaseReady, Keeper: Self()}, true, true},
		"starting":                    {State{Phase: PhaseStarting, Keeper: Self()}, false, false},
		"failed, and still there":     {State{Phase: PhaseFailed, Keeper: Self()}, true, false},
		"failed, in the background":   {State{Phase: PhaseFailed, Keeper: gone}, true, false},
		"unconfined":                  {State{Phase: PhaseOpen, Keeper: Self()}, true, false},
		"was ready":                   {State{Phase: PhaseReady, Keeper: gone}, false, false},
		"ready before a restart":      {State{Phase: PhaseReady, Keeper: before}, false, false},
		"failed before a restart":     {State{Phase: PhaseFailed, Keeper: before}, false, false},
		"unconfined before a restart": {State{Phase: PhaseOpen, Keeper: before}, false, false},
	} {
		if settled, err := c.state.Settled(); settled != c.settled || c.settled && (err == nil) != c.well {
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
		"at the last look":              {now.Add(-AttestEvery), true},
		"too long ago":                  {now.Add(-time.Minute), false},
		"before the clock was set back": {now.Add(time.Hour), false},
		"by another clock, nearly":      {now.Add(time.Second), true},
	} {
		s := State{Phase: PhaseReady, Keeper: Self(), Published: c.published.Round(0), Guard: Guard{OK: true}}
		if ok, why := s.Healthy(now); ok != c.healthy {
			t.Errorf("%s: healthy is %t: %v", name, ok, why)
		}
	}
}

// TestStatusAudit: who loses events is not healthy.
func TestStatusAudit(t *testing.T) {
	s := State{Phase: PhaseReady, Keeper: Self(), Published: time.Now(), Guard: Guard{OK: true}, Audit: Audit{Fault: "disk full"}}
	if ok, why := s.Healthy(time.Now()); ok || len(why) != 1 {
		t.Errorf("healthy is %t: %v", ok, why)
	}
}
