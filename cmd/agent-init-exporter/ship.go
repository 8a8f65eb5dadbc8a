package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/agent-init/agent-init/pkg/audit"
)

// How the log is sent.
const (
	batchSize  = 512 // events
	idle       = 200 * time.Millisecond
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// shipper sends the log from where it has come to. What waits for a collector that is away is the log itself: its size is
// the bound. What the log loses before it was sent is counted, and so is what the collector turns down.
type shipper struct {
	log     *slog.Logger
	path    string
	cursor  cursor
	sink    sdklog.Exporter
	records *records
	place   place
}

// place is how far the shipper has come, over all its runs.
type place struct {
	Seq     uint64 `json:"seq"`     // the last event that the collector has
	Sent    uint64 `json:"sent"`    // events
	Lost    uint64 `json:"lost"`    // the log had no more when it was their turn
	Refused uint64 `json:"refused"` // by the collector, for good
}

// run sends until ctx ends. An event is sent again if the collector was cut off before its answer came, or the exporter
// before it noted that: at least once, and by agent_init.seq it is known which were twice.
func (s *shipper) run(ctx context.Context) (err error) {
	if s.place, err = s.cursor.read(); err != nil {
		return err
	}
	r, err := audit.ReadAfter(s.path, s.place.Seq)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	defer r.Close()
	lost := s.place.Lost
	for ctx.Err() == nil {
		last, err := s.fill(r)
		if err != nil {
			return err
		}
		if n := len(s.records.made); n > 0 {
			refused, sent := s.send(ctx)
			if !sent {
				break
			}
			s.place.Seq, s.place.Sent, s.place.Refused = last, s.place.Sent+uint64(n)-refused, s.place.Refused+refused
			s.place.Lost = lost + r.Lost()
			if err := s.cursor.write(s.place); err != nil {
				return err
			}
		}
		if len(s.records.made) < batchSize {
			sleep(ctx, idle)
		}
		s.records.made = s.records.made[:0]
	}
	return nil
}

// fill takes as many events as a batch has, and returns the number of the last.
func (s *shipper) fill(r *audit.Reader) (last uint64, err error) {
	for len(s.records.made) < batchSize {
		_, e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("read the log: %w", err)
		}
		s.records.add(e)
		last = e.Seq
	}
	return last, nil
}

// send sends the batch until the collector has taken it, and says how many events of it were refused.
func (s *shipper) send(ctx context.Context) (refused uint64, sent bool) {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := s.sink.Export(ctx, s.records.made)
		if err == nil {
			return 0, true
		}
		if n, partly := partial(err); partly {
			s.log.Warn("the collector has turned events down", "error", err)
			return min(n, uint64(len(s.records.made))), true
		}
		if ctx.Err() != nil {
			return 0, false
		}
		s.log.Warn("the collector can't be reached; the log waits", "error", err, "again_in", backoff)
		sleep(ctx, backoff)
	}
}

var partially = regexp.MustCompile(`OTLP partial success: .*\((\d+) (?:logs|log records) rejected\)`)

// partial says whether the collector has taken a batch but for some events, which must not be sent again. The SDK has no
// type for it that others can see.
func partial(err error) (refused uint64, ok bool) {
	m := partially.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, false
	}
	refused, _ = strconv.ParseUint(m[1], 10, 64)
	return refused, true
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// cursor is the file with the place.
type cursor struct{ f *os.File }

const cursorSize = 160 // always: it is written over the one before

func (c cursor) read() (p place, err error) {
	data := make([]byte, cursorSize)
	n, err := c.f.ReadAt(data, 0)
	if n == 0 && errors.Is(err, io.EOF) {
		return p, nil
	}
	if err := json.Unmarshal(data[:n], &p); err != nil {
		return p, fmt.Errorf("read how far the log was sent: %w", err)
	}
	return p, nil
}

func (c cursor) write(p place) error {
	data, _ := json.Marshal(p) // four numbers
	for len(data) < cursorSize-1 {
		data = append(data, ' ')
	}
	if _, err := c.f.WriteAt(append(data, '\n'), 0); err != nil {
		return fmt.Errorf("note how far the log was sent: %w", err)
	}
	return nil
}
