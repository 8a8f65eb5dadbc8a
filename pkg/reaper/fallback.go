package reaper

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"syscall"
)

// fallback hands signals that we may not send to Options.SignalFallback, in
// order, from a goroutine of its own. One that is still waiting swallows an
// equal one, as the kernel does with pending signals, so the queue is bounded.
type fallback struct {
	send func(pids []int, sig syscall.Signal) error
	log  *slog.Logger
	wake chan struct{}
	warn sync.Once

	mu      sync.Mutex
	pending []denied
}

type denied struct {
	pid int
	sig syscall.Signal
}

func (f *fallback) add(sig syscall.Signal, pids ...int) {
	if len(pids) == 0 {
		return
	}
	if f.send == nil {
		f.warn.Do(func() { f.log.Warn("may not signal the agent: run with CAP_KILL", "signal", sig, "pids", pids) })
		return
	}
	f.mu.Lock()
	for _, pid := range pids {
		if d := (denied{pid, sig}); !slices.Contains(f.pending, d) {
			f.pending = append(f.pending, d)
		}
	}
	f.mu.Unlock()
	notify(f.wake)
}

// take removes the longest run of requests for one signal from the front.
func (f *fallback) take() (pids []int, sig syscall.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.pending) > 0 && (pids == nil || f.pending[0].sig == sig) {
		pids, sig = append(pids, f.pending[0].pid), f.pending[0].sig
		f.pending = f.pending[1:]
	}
	return pids, sig
}

// run works until ctx ends.
func (f *fallback) run(ctx context.Context) {
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
		for pids, sig := f.take(); pids != nil; pids, sig = f.take() {
			if err := f.send(pids, sig); err != nil {
				f.log.Warn("cannot signal the agent", "signal", sig, "pids", pids, "error", err)
			}
		}
	}
}
