// Package race connects to the first of several addresses that answers (RFC 8305).
package race

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"
)

// After is how long one address is waited for before the next is tried beside it (RFC 8305, section 5).
const After = 250 * time.Millisecond

// Room bounds the attempts of all races that are under way beside the first of each. Nil is no bound.
type Room chan struct{}

func (r Room) take() bool {
	if r == nil {
		return true
	}
	select {
	case r <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r Room) leave() {
	if r != nil {
		<-r
	}
}

// Race is how one connection is made.
type Race[C io.Closer] struct {
	Dial   func(context.Context, netip.Addr) (C, error)
	Others func(context.Context) []netip.Addr // asked for at most once, when the first address has not answered; nil: none
	After  time.Duration                      // between attempts; one that fails is followed at once
	Room   Room
}

// Failed is the failure of all attempts, with the cause of the first.
type Failed struct {
	Tried int
	First error
}

func (f *Failed) Error() string { return f.First.Error() + f.Others() }

// Others says how many addresses beside the first have failed.
func (f *Failed) Others() string {
	if f.Tried == 1 {
		return ""
	}
	return fmt.Sprintf(", and %d more failed", f.Tried-1)
}

func (f *Failed) Unwrap() error { return f.First }

type result[C io.Closer] struct {
	conn   C
	at     netip.Addr
	err    error
	beside bool // it has taken room
}

// Connect tries first, and then the others. What still is under way once one has answered is given up. With ctx, all is.
func (r Race[C]) Connect(ctx context.Context, first netip.Addr) (conn C, at netip.Addr, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, found := make(chan result[C]), make(chan []netip.Addr, 1)
	begin := func(a netip.Addr, beside bool) {
		go func() {
			conn, err := r.Dial(ctx, a)
			if beside {
				r.Room.leave()
			}
			select {
			case results <- result[C]{conn, a, err, beside}:
			case <-ctx.Done():
				if err == nil {
					conn.Close() // another one was first
				}
			}
		}()
	}
	var (
		queue   []netip.Addr
		asked   = r.Others == nil
		asking  bool
		running = 1
		alone   = true // something is under way that has taken no room
		failed  = Failed{Tried: 1}
	)
	// next begins another attempt, or asks where there could be one.
	next := func() {
		switch {
		case !asked:
			asked, asking = true, true
			go func() { found <- r.Others(ctx) }()
		case len(queue) > 0 && (!alone || r.Room.take()):
			begin(queue[0], alone)
			queue, alone = queue[1:], true
			running++
			failed.Tried++
		}
	}
	begin(first, false)
	tick := time.NewTicker(r.After)
	defer tick.Stop()
	for running > 0 || asking || len(queue) > 0 {
		select {
		case got := <-results:
			if got.err == nil {
				return got.conn, got.at, nil
			}
			running--
			alone = alone && got.beside
			if got.at == first || failed.First == nil {
				failed.First = got.err
			}
			next()
			tick.Reset(r.After)
		case addrs := <-found:
			asking = false
			queue = interleave(first, addrs)
			next()
			tick.Reset(r.After)
		case <-tick.C:
			next()
		case <-ctx.Done():
			if failed.First == nil {
				failed.First = ctx.Err()
			}
			if errors.Is(failed.First, context.DeadlineExceeded) {
				failed.First = os.ErrDeadlineExceeded
			}
			return conn, at, &failed
		}
	}
	return conn, at, &failed
}

// interleave returns addrs without first, of one family and the other in turns, beginning with the one that first is not
// of (RFC 8305, section 4).
func interleave(first netip.Addr, addrs []netip.Addr) (order []netip.Addr) {
	var same, other []netip.Addr
	for _, a := range addrs {
		switch {
		case a == first || slices.Contains(same, a) || slices.Contains(other, a):
		case a.Is4() == first.Is4():
			same = append(same, a)
		default:
			other = append(other, a)
		}
	}
	for len(same) > 0 || len(other) > 0 {
		if len(other) > 0 {
			order, other = append(order, other[0]), other[1:]
		}
		same, other = other, same
	}
	return order
}
