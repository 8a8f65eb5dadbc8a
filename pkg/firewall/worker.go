package firewall

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var errClosed = errors.New("firewall is closed")

// worker does one job after another on a socket to the kernel. Its caller can
// give up waiting, which the kernel can't be made to.
type worker struct {
	jobs  chan job
	quit  chan struct{}
	done  sync.WaitGroup
	close func()
	lease func([]Lease) error // does the leases of many callers at once
}

type job struct {
	ctx    context.Context
	run    func() error
	leases []Lease
	asked  time.Time  // for leases
	result chan error // has room for one
}

// left are the leases of j with the time that they still have: none lasts longer for having waited.
func (j job) left() []Lease {
	out := slices.Clone(j.leases)
	for i := range out {
		out[i].TTL -= time.Since(j.asked)
	}
	return out
}

func newWorker(lease func([]Lease) error) *worker {
	w := &worker{jobs: make(chan job, 1024), quit: make(chan struct{}), lease: lease}
	w.close = sync.OnceFunc(func() { close(w.quit); w.done.Wait() })
	w.done.Go(w.loop)
	return w
}

func (w *worker) do(ctx context.Context, run func() error) error {
	return w.wait(job{ctx: ctx, run: run})
}

// leaseSoon has ls leased, together with what others ask for meanwhile.
func (w *worker) leaseSoon(ctx context.Context, ls []Lease) error {
	return w.wait(job{ctx: ctx, leases: ls, asked: time.Now()})
}

func (w *worker) wait(j job) error {
	if err := j.ctx.Err(); err != nil {
		return err
	}
	j.result = make(chan error, 1)
	for queue := w.jobs; ; queue = nil { // a nil channel is never ready
		select {
		case queue <- j:
		case err := <-j.result:
			return err
		case <-j.ctx.Done():
			return j.ctx.Err()
		case <-w.quit:
			return errClosed
		}
	}
}

func (w *worker) loop() {
	for {
		select {
		case <-w.quit:
			return
		case j := <-w.jobs:
			for next := &j; next != nil; {
				next = w.step(*next)
			}
		}
	}
}

// maxGathered is how many leases are done at once: what a backend puts into one transaction.
const maxGathered = 1000

// step does j and, if j is a lease, the leases that wait behind it. It returns the first job behind these that is none.
func (w *worker) step(j job) (next *job) {
	if j.ctx.Err() != nil { // the caller has gone
		return nil
	}
	if j.run != nil {
		j.result <- j.run()
		return nil
	}
	batch := []job{j}
	all := j.left()
	for len(all) < maxGathered && len(w.jobs) > 0 { // which only the worker takes from
		k := <-w.jobs
		if k.run != nil {
			next = &k
			break
		}
		batch, all = append(batch, k), append(all, k.left()...)
	}
	err := w.lease(all)
	for _, b := range batch {
		if err != nil && len(batch) > 1 { // whose fault it was isn't known
			b.result <- w.lease(b.left())
			continue
		}
		b.result <- err
	}
	return next
}
