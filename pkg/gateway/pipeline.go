package gateway

import (
	"errors"
	"os"
	"slices"
	"sync"
)

const maxPipeline = 32 // requests of a connection that wait for their response

// errFinished says that nothing may follow what was passed on.
var errFinished = &writeError{errors.New("nothing may follow")}

// pipeline has the requests of a connection that were passed on and not fully answered
// yet. One goroutine adds requests, another one answers them.
type pipeline struct {
	mu      sync.Mutex
	changed sync.Cond
	waiting []asked // oldest first
	last    bool    // nothing can follow the response at hand, or a direction has ended
	quiet   bool    // the client's side is taken by drain
	raw     bool    // the protocol was switched

	interrupt func() // ends a read of settle
	reading   bool   // there is one, and it was not interrupted
}

// asked is what has to be known of a request to read its response.
type asked struct {
	method string
	offers []string // of an upgrade
	last   bool     // nothing is passed on behind it
}

func newPipeline(interrupt func()) *pipeline {
	p := &pipeline{interrupt: interrupt}
	p.changed.L = &p.mu
	return p
}

// change does what fn says and wakes everyone.
func (p *pipeline) change(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
	p.tell()
}

// tell wakes everyone. The lock is held.
func (p *pipeline) tell() {
	p.changed.Broadcast()
	if p.reading {
		p.reading = false
		p.interrupt()
	}
}

// pop notes that the oldest request is fully answered, switched that the server has
// agreed to another protocol, end that nothing follows the response at hand.
func (p *pipeline) pop()      { p.change(func() { p.waiting = slices.Delete(p.waiting, 0, 1) }) }
func (p *pipeline) switched() { p.change(func() { p.raw = true }) }
func (p *pipeline) end()      { p.change(func() { p.last = true }) }

// push adds a request that is to be passed on, or returns false if none may follow. It waits for room.
func (p *pipeline) push(r asked) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.await(maxPipeline - 1)
	if !p.last {
		p.waiting = append(p.waiting, r)
	}
	return !p.last
}

// await waits until at most this many requests are not answered, or nothing may follow. The lock is held.
func (p *pipeline) await(most int) {
	for len(p.waiting) > most && !p.last {
		p.changed.Wait()
	}
}

// front returns the request that the server's next bytes answer. If there is none, they are unasked (as a 408 before a
// server closes), and nothing may follow them; ok is false then if the client may not even get those.
func (p *pipeline) front() (r asked, was, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 {
		return p.waiting[0], true, true
	}
	p.last = true
	p.tell()
	return asked{}, false, !p.quiet
}

// settle waits until every request is answered, and says whether the last one was by a switch of protocols. Meanwhile
// it calls read, which keeps what it reads: the client may give up. resume is called after a read that was interrupted.
func (p *pipeline) settle(read func() error, resume func()) (raw bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 && !p.raw && !p.last {
		if read == nil {
			p.changed.Wait()
			continue
		}
		p.reading = true
		p.mu.Unlock()
		err := read()
		p.mu.Lock()
		interrupted := !p.reading
		p.reading = false
		if interrupted {
			resume()
		}
		switch {
		case err == nil, interrupted && errors.Is(err, os.ErrDeadlineExceeded):
		case err == errFull:
			read = nil // there is nothing more to learn
		default:
			// At its end, what the client has said too early is lost: an answer that may never come is not waited for.
			return false, err
		}
	}
	if p.last && !p.raw {
		return false, errFinished
	}
	return p.raw, nil
}

// drain waits until every request is answered. If it returns true, the caller
// may write to the client, at a boundary between messages, until resume.
func (p *pipeline) drain() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.await(0)
	p.quiet = !p.last
	return p.quiet
}

func (p *pipeline) resume() { p.change(func() { p.quiet = false }) }
