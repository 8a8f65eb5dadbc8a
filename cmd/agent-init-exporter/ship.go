package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/pkg/audit"
)

// How the log is sent.
const (
	batchSize  = 512 // events
	idle       = 200 * time.Millisecond
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	goneAfter  = 10 * time.Second
	maxPause   = 5 * time.Minute // after refusals, or where the collector asks for one
)

// shipper sends the log from where it has come to. What waits for a collector that is away is the log itself: its size is
// the bound. What the log loses before it was sent is counted, and so is what the collector refuses.
type shipper struct {
	log    *slog.Logger
	path   string
	open   audit.Opener
	sink   func(stage.ExporterConfig) (exporter, error)
	report func(p stage.Place, why string) error
	others <-chan stage.ExporterConfig
	meter  meter

	config stage.ExporterConfig
	to     exporter // nil: there is nowhere to send to
	made   *records
	place  stage.Place
	limit  int    // of events in a batch, after the collector has found one too large
	why    string // the collector takes nothing, as it was reported

	refusals int       // since something was taken
	missing  time.Time // since when there is no log
}

// run sends until ctx ends. An event is sent again if the collector was cut off before its answer came, or the exporter
// before it had reported that: at least once, and by its number it is known which were twice.
func (s *shipper) run(ctx context.Context) error {
	r, err := audit.ReadAfter(s.path, s.place.Seq, s.open)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	defer r.Close()
	s.meter.due = time.NewTimer(time.Hour) // take knows when
	defer s.meter.due.Stop()
	if err := s.take(s.config); err != nil {
		return err
	}
	lost := s.place.Lost // before this reader
	var batch []item
	for ctx.Err() == nil {
		switch {
		case s.to == nil:
			err = s.wait(ctx, maxPause)
		case len(batch) == 0:
			if batch, err = fill(r, lost); err == nil && batch == nil {
				err = errors.Join(s.present(), s.wait(ctx, idle))
			}
		default:
			select {
			case <-s.meter.due.C:
				s.measure(ctx)
			default:
			}
			var n int
			n, err = s.send(ctx, batch)
			batch = batch[n:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// item is an event, and how many before it the log had no more.
type item struct {
	audit.Event
	lost uint64
}

// fill takes as many events as a batch may have.
func fill(r *audit.Reader, lost uint64) (batch []item, err error) {
	for len(batch) < batchSize {
		_, e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		batch = append(batch, item{e, lost + r.Lost()})
	}
	return batch, nil
}

// present finds a log that is gone, with its directory: one that is made anew is another one, which the keeper opens for
// the next exporter. While a file is renamed there is none for a moment.
func (s *shipper) present() error {
	_, err := os.Stat(s.path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		s.missing = time.Time{}
	case s.missing.IsZero():
		s.missing = time.Now()
	case time.Since(s.missing) > goneAfter:
		return errors.New("the log is gone")
	}
	return nil
}

// send sends the batch, or the beginning of it, until the collector has taken or refused that, or it is to be sent to
// another one. It returns how many events are dealt with.
func (s *shipper) send(ctx context.Context, batch []item) (int, error) {
	for backoff := minBackoff; ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
		n := min(len(batch), s.limit)
		v := s.to.send(ctx, s.made.of(batch[:n]))
		switch {
		case ctx.Err() != nil:
			return 0, nil
		case v.kind == taken:
			rejected := min(v.rejected, uint64(n))
			if rejected > 0 {
				s.log.Warn("the collector has rejected events", "events", rejected, "why", v.why)
			}
			s.limit, s.refusals = min(2*s.limit, batchSize), 0
			return n, s.done(batch[n-1], uint64(n)-rejected, rejected, "")
		case v.kind == tooLarge && n > 1:
			s.limit = n / 2
			continue
		case v.kind == refused || v.kind == tooLarge:
			s.log.Warn("the collector has refused events", "events", n, "why", v.why)
			if err := s.done(batch[n-1], 0, uint64(n), v.why); err != nil {
				return n, err
			}
			// The longer the more there were: what would be refused as well is kept in the log meanwhile.
			s.refusals++
			return n, s.wait(ctx, min(minBackoff<<min(s.refusals, 20), maxPause))
		}
		s.log.Info("the collector takes nothing; the log waits", "why", v.why, "again_in", backoff)
		if err := s.tell(v.why); err != nil {
			return 0, err
		}
		to := s.to
		if err := s.wait(ctx, min(max(backoff, v.after), maxPause)); err != nil || s.to != to {
			return 0, err // the batch goes elsewhere
		}
	}
	return 0, nil
}

// done notes what has become of the events up to that one, in one report: a successor begins behind it.
func (s *shipper) done(last item, sent, refused uint64, why string) error {
	s.place = stage.Place{Seq: last.Seq, Sent: s.place.Sent + sent, Refused: s.place.Refused + refused, Lost: last.lost}
	s.why = why
	return s.report(s.place, why)
}

// tell reports why nothing is taken, if that is news.
func (s *shipper) tell(why string) error {
	if why == s.why {
		return nil
	}
	s.why = why
	return s.report(s.place, why)
}

// take goes on with another configuration.
func (s *shipper) take(c stage.ExporterConfig) error {
	if s.to != nil {
		s.to.close()
	}
	s.config, s.to, s.limit = c, nil, batchSize
	s.meter.every = c.Metrics
	s.meter.next(0)
	s.meter.tell("")
	if c.Endpoint == "" {
		return s.tell("")
	}
	to, err := s.sink(c)
	if err != nil {
		return s.tell(err.Error())
	}
	s.to, s.made = to, newRecords(c.Resource)
	return s.tell("")
}

// wait waits, but not past another configuration.
func (s *shipper) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case c := <-s.others:
			return s.take(c)
		case <-s.meter.due.C:
			s.measure(ctx)
		case <-ctx.Done():
			return nil
		case <-t.C:
			return nil
		}
	}
}
