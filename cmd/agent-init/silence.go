package main

import (
	"errors"
	"fmt"
	"time"
)

// silence counts how often the keeper has looked, one pingEvery after the other,
// and found nothing new of a child of its own. Time that passes while nobody runs,
// in a container that is paused or a machine that sleeps, is not the child's fault.
type silence struct {
	who      string
	patience time.Duration // after which it counts as hung
	since    time.Time     // its start
	last     time.Time     // it was seen
	looks    int           // since then
}

// look says whether a child that was seen last at that time serves, or else that
// it has had its time.
func (s *silence) look(seen time.Time) (serves bool, err error) {
	s.looks++
	if seen.Before(s.since) {
		if s.looks > int(guardStartTime/pingEvery) {
			return false, errors.New(s.who + " did not start in time")
		}
		return false, nil
	}
	if seen.After(s.last) {
		s.last, s.looks = seen, 0
	}
	if s.looks > int(s.patience/pingEvery) {
		return false, fmt.Errorf("%s did not answer for %v", s.who, s.patience)
	}
	return true, nil
}
