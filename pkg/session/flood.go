package session

import "sync/atomic"

// flood takes large outputs off the goroutine that reads them: the program waits
// for who empties its terminal, and not for who looks at what was in there. What
// is in between is bounded; small outputs don't take this way.
type flood struct {
	full, free chan []byte
	behind     atomic.Int32 // pieces that were handed over and are not done
	done       chan struct{}
}

// aheadOfModel is how many pieces the reader may be ahead.
const aheadOfModel = 4

// idle reports whether all that was handed over is done.
func (f *flood) idle() bool { return f.behind.Load() == 0 }

// hand hands b over, and returns a buffer to go on with.
func (f *flood) hand(w *window, b []byte) []byte {
	if f.full == nil {
		f.full, f.free, f.done = make(chan []byte, aheadOfModel), make(chan []byte, aheadOfModel), make(chan struct{})
		for range aheadOfModel {
			f.free <- make([]byte, readAtOnce)
		}
		go func() {
			defer close(f.done)
			for b := range f.full {
				w.output(b)
				f.behind.Add(-1)
				f.free <- b[:cap(b)]
			}
		}()
	}
	f.behind.Add(1)
	f.full <- b
	return <-f.free
}

// wait ends it, once all is done.
func (f *flood) wait() {
	if f.full != nil {
		close(f.full)
		<-f.done
	}
}
