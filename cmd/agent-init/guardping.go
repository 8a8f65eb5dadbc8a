package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ping finds a guard that is alive and does nothing: stopped, or hung.
func (g *guardKeeper) ping(ctx context.Context, ch *channel) error {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	quiet := silence{since: time.Now()}
	for id := uint32(1); ; id++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		var seen time.Time
		g.keeper.update(func(s *state) { seen = s.Guard.Seen })
		serves, err := quiet.look(seen)
		if err != nil {
			return err
		}
		if !serves {
			continue
		}
		if err := ch.send(message{op: opPing, id: id}, nil); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("ask the guard: %w", err)
		}
	}
}

// silence counts how often the keeper has looked, one pingEvery after the other,
// and found nothing new of the guard. Time that passes while nobody runs, in a
// container that is paused or a machine that sleeps, is not the guard's fault.
type silence struct {
	since time.Time // the guard's start
	last  time.Time // it was seen
	looks int       // since then
}

// look says whether a guard that was seen last at that time serves, or else that
// it has had its time.
func (s *silence) look(seen time.Time) (serves bool, err error) {
	s.looks++
	if seen.Before(s.since) {
		if s.looks > int(guardStartTime/pingEvery) {
			return false, errors.New("the guard did not start in time")
		}
		return false, nil
	}
	if seen.After(s.last) {
		s.last, s.looks = seen, 0
	}
	if s.looks > int(pingPatience/pingEvery) {
		return false, fmt.Errorf("the guard did not answer for %v", pingPatience)
	}
	return true, nil
}
