package session

import (
	"cmp"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
)

// maxQueue is how much output waits for a client, in bytes. Beyond it the client gets the screen when it has caught up.
const maxQueue = 1 << 20

const maxPending = 8 << 20 // when a client that reads nothing and goes on asking is put out

// A flood is more than this many bytes a second, and at once.
const (
	floodRate  = 8 << 20
	floodBurst = 4 << 20
)

// Patience with a client.
const (
	stuckAfter  = 10 * time.Second      // without taking a byte: it is put out
	viewEvery   = 40 * time.Millisecond // between two screens for a client that is shown the model
	writeAtOnce = 64 << 10
)

// queue is what waits to be written to a client. Put never waits: what the socket doesn't take is run's.
type queue struct {
	conn     *stream
	patience time.Duration
	kick     chan struct{} // there is something to do for run
	done     chan struct{} // closed when the client is gone

	refresh func()        // puts the screen into this queue, for a client that lost its place; called without the lock
	slots   chan struct{} // bounds how many screens wait to be taken at a time
	stale   atomic.Bool   // the client has lost its place

	mu      sync.Mutex
	pending []byte
	busy    bool      // run is writing what was pending
	drawn   time.Time // when the screen was last drawn afresh
	credit  int       // bytes that may be sent before it counts as a flood
	paid    time.Time // up to when the credit was given
	closed  bool
	last    bool // close when all is written
	frame   []byte
}

func newQueue(conn *stream, refresh func(), patience time.Duration, slots chan struct{}) *queue {
	return &queue{patience: cmp.Or(patience, stuckAfter), conn: conn, slots: slots,
		kick: make(chan struct{}, 1), done: make(chan struct{}), refresh: refresh}
}

// put queues a frame, and reports whether it was taken. Output is not, if too much waits: then the client is stale.
func (q *queue) put(k frame.Kind, payload []byte, mayLose bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.last {
		return false
	}
	if mayLose && (q.stale.Load() || len(q.pending)+len(payload) > maxQueue || !q.afford(len(payload))) {
		q.spoil()
		return false
	}
	if len(q.pending)+len(payload) > maxPending {
		q.shut()
		return false
	}
	if len(q.pending) > 0 || q.busy {
		q.pending = frame.Append(q.pending, k, payload)
		return true
	}
	q.frame = frame.Append(q.frame[:0], k, payload)
	if n := q.conn.writeNow(q.frame); n < len(q.frame) {
		q.pending = append(q.pending, q.frame[n:]...)
		q.wake()
	}
	if cap(q.frame) > 2*writeAtOnce {
		q.frame = nil
	}
	return true
}

// afford takes n bytes from what the client may be sent of a flood: nobody reads what goes by that fast, and the
// program would wait for it. It is sent the screen now and then.
func (q *queue) afford(n int) bool {
	if q.credit -= n; q.credit >= 0 {
		return true
	}
	now := time.Now()
	elapsed := min(now.Sub(q.paid), floodBurst*time.Second/floodRate)
	q.credit = int(elapsed*floodRate/time.Second) - n
	q.paid = now
	return q.credit >= 0
}

// spoil notes that the client needs the screen afresh.
func (q *queue) spoil() {
	if !q.stale.Swap(true) {
		q.wake()
	}
}

// screen puts what draws the screen, and makes the client live again.
func (q *queue) screen(b []byte) {
	q.mu.Lock()
	q.drawn = time.Now()
	q.stale.Store(false)
	q.mu.Unlock()
	q.put(frame.Screen, b, false)
}

func (q *queue) wake() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

func (q *queue) end() {
	q.mu.Lock()
	q.last = true
	q.mu.Unlock()
	q.wake()
}

var errStuck = errors.New("nothing was read for too long")

func (q *queue) run() error {
	var out []byte
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	holding := false // a slot, until the screen is written
	release := func() {
		if holding {
			<-q.slots
			holding = false
		}
	}
	defer release()
	for {
		q.mu.Lock()
		out, q.pending = q.pending, out[:0]
		q.busy = len(out) > 0
		last, wait := q.last, viewEvery-time.Since(q.drawn)
		q.mu.Unlock()
		if len(out) > 0 {
			if err := q.write(out); err != nil {
				return err
			}
			if cap(out) > 2*maxQueue {
				out = nil
			}
			continue
		}
		release()
		switch {
		case last:
			return nil
		case !q.stale.Load():
			wait = time.Hour
		case wait <= 0:
			select {
			case q.slots <- struct{}{}:
				holding = true
			case <-q.done:
				return net.ErrClosed
			}
			q.refresh()
			continue
		}
		timer.Reset(wait)
		select {
		case <-q.kick:
		case <-timer.C:
		case <-q.done:
			return net.ErrClosed
		}
	}
}

// write writes all of b, as long as the client takes something now and then.
func (q *queue) write(b []byte) error {
	for len(b) > 0 {
		n, err := q.conn.write(b[:min(len(b), writeAtOnce)], time.Now().Add(q.patience))
		b = b[n:]
		switch slow := errors.Is(err, os.ErrDeadlineExceeded); {
		case slow && n == 0:
			return errStuck
		case err != nil && !slow:
			return err
		}
	}
	return nil
}

// close ends the connection at once. It may be called again.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shut()
}

func (q *queue) shut() {
	if !q.closed {
		q.closed = true
		close(q.done)
		q.conn.Close()
	}
}

func (q *queue) roomy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending) < maxQueue
}
