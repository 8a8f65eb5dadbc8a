// Package room bounds what requests hold in memory. Room is taken as bytes come, so a request that sends nothing takes
// none.
package room

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrFull is why a request gets no room, or has to give back what it has.
var ErrFull = errors.New("requests fill the memory that there is for them, and this one was the slowest: send fewer at once")

// Room is what all requests may hold.
//
// A request that finds it full waits in a queue, before those that are to hold more. So many large ones that do not end
// delay no small one. The queue moves when another request gives room back, and when an idle request is told to, the
// largest first. If no request is idle, the queue waits for Patience. Then the one gives way that has held most for
// longest without using it: maybe one that waits. So requests that each hold a part and want more end, too.
type Room struct {
	Idle     time.Duration // that a request may hold room without moving a quarter of it, while others wait
	Patience time.Duration // that requests wait for such as are not idle
	Longest  time.Duration // that one request waits for others

	limit int64

	mu    sync.Mutex
	used  int64
	holds map[*Hold]struct{} // with any room
	queue []*waiter
}

// Hold is what one request has of a room.
type Hold struct {
	room *Room
	end  func()

	// These are the room's.
	size    int64
	moved   int64     // since then
	since   time.Time // when a quarter of size had moved, less the time that it waited
	waiting int       // how often it is in the queue
	paused  time.Time // when waiting began
	gave    bool      // it has been told to end
}

type waiter struct {
	hold  *Hold
	size  int64
	all   int64 // what its hold then has
	since time.Time
	over  chan struct{} // closed when it has the room, or its hold gives way
	has   bool
}

// New returns a room of limit bytes.
func New(limit int64) *Room {
	return &Room{Idle: 3 * time.Second, Patience: 10 * time.Second, Longest: time.Minute, limit: limit, holds: map[*Hold]struct{}{}}
}

// Hold begins without room. The room calls end once, in a goroutine of its own, if the request has to give back all it
// has.
func (r *Room) Hold(end func()) *Hold { return &Hold{room: r, end: end} }

// Free is what nobody holds.
func (r *Room) Free() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit - r.used
}

// Take takes n bytes, and waits for them if it has to.
func (h *Hold) Take(ctx context.Context, n int64) error {
	r := h.room
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case h.gave, n > r.limit:
		return ErrFull
	case r.used+n <= r.limit && (len(r.queue) == 0 || h.size+n < r.queue[0].all):
		h.add(n)
		return nil
	}
	w := &waiter{hold: h, size: n, all: h.size + n, since: time.Now(), over: make(chan struct{})}
	if h.waiting++; h.waiting == 1 {
		h.paused = w.since
	}
	at := slices.IndexFunc(r.queue, func(o *waiter) bool { return o.all > w.all })
	if at < 0 {
		at = len(r.queue)
	}
	r.queue = slices.Insert(r.queue, at, w)
	r.press()
	r.mu.Unlock()
	err := w.wait(ctx)
	r.mu.Lock()
	if h.waiting--; h.waiting == 0 {
		h.since = h.since.Add(time.Since(h.paused))
	}
	if i := slices.Index(r.queue, w); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		r.wake()
	}
	switch {
	case w.has:
		return nil
	case err != nil:
		return err
	}
	return ErrFull
}

// wait waits until it is over, and presses meanwhile.
func (w *waiter) wait(ctx context.Context) error {
	r := w.hold.room
	again := time.NewTicker(max(r.Idle/4, time.Millisecond))
	defer again.Stop()
	for {
		select {
		case <-w.over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
			r.mu.Lock()
			r.press()
			r.mu.Unlock()
			if time.Since(w.since) > r.Longest {
				return ErrFull
			}
		}
	}
}

// Give gives n bytes back.
func (h *Hold) Give(n int64) {
	r := h.room
	r.mu.Lock()
	defer r.mu.Unlock()
	h.add(-min(n, h.size)) // it may have ended
	r.wake()
}

// End gives back all, and takes no more.
func (h *Hold) End() {
	r := h.room
	r.mu.Lock()
	defer r.mu.Unlock()
	h.gave = true
	h.add(-h.size)
	r.wake()
}

// Moved says that n bytes came or went.
func (h *Hold) Moved(n int) {
	h.room.mu.Lock()
	defer h.room.mu.Unlock()
	if h.moved += int64(n); h.moved >= h.size/4 {
		h.moved, h.since = 0, time.Now()
	}
}

// Gave says whether the request was told to end.
func (h *Hold) Gave() bool {
	h.room.mu.Lock()
	defer h.room.mu.Unlock()
	return h.gave
}

// add has h hold n bytes more.
func (h *Hold) add(n int64) {
	r := h.room
	if h.size == 0 {
		h.moved, h.since = 0, time.Now()
		if h.waiting > 0 {
			h.paused = h.since
		}
	}
	h.size += n
	r.used += n
	if h.size > 0 {
		r.holds[h] = struct{}{}
	} else {
		delete(r.holds, h)
	}
}

// idle is how long h has had its room for nothing. To wait for more is not its fault.
func (h *Hold) idle(now time.Time) time.Duration {
	if h.waiting > 0 {
		now = h.paused
	}
	return now.Sub(h.since)
}

// wake gives room to the first of the queue.
func (r *Room) wake() {
	for len(r.queue) > 0 && r.used+r.queue[0].size <= r.limit {
		w := r.queue[0]
		r.queue = r.queue[1:]
		w.has = true
		w.hold.add(w.size)
		close(w.over)
	}
}

// press tells as many to end as hold what the first of the queue needs.
func (r *Room) press() {
	if len(r.queue) == 0 {
		return
	}
	now, first := time.Now(), r.queue[0]
	need := first.size - (r.limit - r.used)
	for h := range r.holds {
		if h.gave {
			need -= h.size
		}
	}
	least := r.Idle
	if slices.ContainsFunc(r.queue, func(w *waiter) bool { return now.Sub(w.since) >= r.Patience }) {
		least = 0
	}
	for need > 0 {
		h := r.idlest(now, least)
		if h == nil {
			return
		}
		need -= h.size
		h.giveWay()
	}
}

// idlest is the one that has held most for longest without using it, nil if none has been idle for least. Longer than
// Idle counts for nothing: a stream that lasts for hours, and holds its head alone, is not worth a large body.
func (r *Room) idlest(now time.Time, least time.Duration) *Hold {
	var found *Hold
	var most float64
	for h := range r.holds {
		idle := h.idle(now)
		if cost := min(idle, r.Idle).Seconds() * float64(h.size); !h.gave && idle >= least && (found == nil || cost > most) {
			found, most = h, cost
		}
	}
	return found
}

// giveWay ends h, and whatever it waits for.
func (h *Hold) giveWay() {
	h.gave = true
	h.room.queue = slices.DeleteFunc(h.room.queue, func(w *waiter) bool {
		if w.hold == h {
			close(w.over)
		}
		return w.hold == h
	})
	go h.end()
}
