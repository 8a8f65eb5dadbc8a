package stage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// How a service is judged, and how soon its successor comes.
const (
	StartTime    = 10 * time.Second       // until it serves
	FarewellTime = 300 * time.Millisecond // to write what it has counted, at the end

	pingEvery   = time.Second
	minBackoff  = 50 * time.Millisecond
	maxBackoff  = 5 * time.Second
	stableAfter = 30 * time.Second
)

// Service keeps a process of this binary running: where one has ended or hangs, it starts
// the next. Its fields say how that speaks, and what it is to its owner.
type Service struct {
	Who      string        // as people call it
	Patience time.Duration // after which it counts as hung
	Log      *slog.Logger
	MaxText  int // of its messages

	Start  func(theirs *os.File) (*reaper.Process, error) // one that has the other end of the channel
	Serve  func(context.Context, *wire.Channel) error     // what it asks for, until its channel closes: why it is to end
	Seen   func() time.Time                               // when one gave a sign of life
	Lost   func() (over bool)                             // it is not spoken with any more; over: it ends in peace, as the last
	Gone   func()                                         // it has ended, or could not be started; may be nil
	Failed func(err error, restart time.Duration)         // there will be another
	cancel context.CancelFunc
	done   chan struct{}
}

// Begin begins to keep a process running, until Stop.
func (s *Service) Begin() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go s.run(ctx)
}

// Stop ends the process, which may end by itself within patience. It waits until it is gone, but not for ever.
func (s *Service) Stop(patience time.Duration) {
	if s.cancel == nil {
		return
	}
	for _, patience := range []time.Duration{patience, 2 * FarewellTime} {
		select {
		case <-s.done:
		case <-time.After(patience):
		}
		s.cancel()
	}
}

func (s *Service) run(ctx context.Context) {
	defer close(s.done)
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		started := time.Now()
		over, err := s.one(ctx)
		if over || ctx.Err() != nil {
			return
		}
		if time.Since(started) > stableAfter {
			backoff = minBackoff
		}
		s.Failed(err, backoff)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
	}
}

// one sees a process from its start to its end, and says why it ended.
func (s *Service) one(ctx context.Context) (over bool, err error) {
	if s.Gone != nil {
		defer s.Gone()
	}
	ours, theirs, err := wire.Pair()
	if err != nil {
		return false, err
	}
	ch := wire.Open(ours, s.MaxText)
	defer ch.Close()
	proc, err := s.Start(theirs)
	theirs.Close()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(s.Serve(ctx, ch)) }()
	go func() { cancel(s.watch(ctx, ch)) }()
	select {
	case <-proc.Done():
		err = fmt.Errorf("%v", proc.Status())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if over = s.Lost(); !over {
		ch.Close() // it ends by itself then, and flushes what it has counted
	}
	for patience := FarewellTime; ; patience = time.Second { // it may be stopped, or hung
		select {
		case <-proc.Done():
			return over, err
		case <-time.After(patience):
			Kill(s.Log, proc, syscall.SIGKILL)
		}
	}
}

// watch finds a process that is alive and does nothing: stopped, or hung.
func (s *Service) watch(ctx context.Context, ch *wire.Channel) error {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	quiet := silence{who: s.Who, patience: s.Patience, since: time.Now()}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		serves, err := quiet.look(s.Seen())
		if err != nil {
			return err
		}
		if !serves {
			continue
		}
		if err := ch.Send(wire.Message{Op: wire.OpPing}, nil); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("ask %s: %w", s.Who, err)
		}
	}
}

// silence counts how often the keeper has looked, one pingEvery after the other, and found nothing new of a child. Time
// that passes while nobody runs, in a container that is paused or a machine that sleeps, is not the child's fault.
type silence struct {
	who      string
	patience time.Duration
	since    time.Time // its start
	last     time.Time // it was seen
	looks    int       // since then
}

// look says whether a child that was seen last at that time serves, or else that it has had its time.
func (s *silence) look(seen time.Time) (serves bool, err error) {
	s.looks++
	switch {
	case seen.Before(s.since) && s.looks > int(StartTime/pingEvery):
		return false, errors.New(s.who + " did not start in time")
	case seen.Before(s.since):
		return false, nil
	case seen.After(s.last):
		s.last, s.looks = seen, 0
	case s.looks > int(s.patience/pingEvery):
		return false, fmt.Errorf("%s did not answer for %v", s.who, s.patience)
	}
	return true, nil
}
