package stage

import (
	"errors"
	"fmt"
	"time"
)

// How a child is judged, and how soon its successor comes.
const (
	GuardStartTime = 10 * time.Second // until it serves
	PingEvery      = time.Second
	PingPatience   = 5 * time.Second // after which it counts as hung, see silence
	MinBackoff     = 50 * time.Millisecond
	MaxBackoff     = 5 * time.Second
	StableAfter    = 30 * time.Second
	FarewellTime   = 300 * time.Millisecond // to write what it has counted, at the end
)

// Silence counts how often the keeper has looked, one pingEvery after the other,
// and found nothing new of a child of its own. Time that passes while nobody runs,
// in a container that is paused or a machine that sleeps, is not the child's fault.
type Silence struct {
	Who      string
	Patience time.Duration // after which it counts as hung
	Since    time.Time     // its start
	last     time.Time     // it was seen
	looks    int           // since then
}

// Look says whether a child that was seen last at that time serves, or else that
// it has had its time.
func (s *Silence) Look(seen time.Time) (serves bool, err error) {
	s.looks++
	if seen.Before(s.Since) {
		if s.looks > int(GuardStartTime/PingEvery) {
			return false, errors.New(s.Who + " did not start in time")
		}
		return false, nil
	}
	if seen.After(s.last) {
		s.last, s.looks = seen, 0
	}
	if s.looks > int(s.Patience/PingEvery) {
		return false, fmt.Errorf("%s did not answer for %v", s.Who, s.Patience)
	}
	return true, nil
}
