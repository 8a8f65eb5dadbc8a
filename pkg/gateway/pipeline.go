package gateway

import (
	"errors"
	"os"
	"sync"
)

const maxPipeline = 32 // requests of a connection that wait for their response

// errFinished says that nothing may follow what was passed on.
var errFinished = errors.New("nothing may follow")

// pipeline has the requests of a connection that were passed on and not fully
// answered yet. One goroutine adds requests, another one answers them.
type pipeline struct {
	mu      sync.Mutex
	changed sync.Cond
	waiting []asked // oldest first
	last    bool    // nothing can follow the response at hand
	quiet   bool    // the client's side is taken by drain
	raw     bool    // the protocol was switched
	closed  bool

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

// tell wakes everyone. The lock is held.
func (p *pipeline) tell() {
	p.changed.Broadcast()
	if p.reading {
		p.reading = false
		p.interrupt()
	}
}

// push adds a request that is about to be passed on. It waits while there are
// too many, and returns false if no more may follow.
func (p *pipeline) push(r asked) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) >= maxPipeline && !p.closed && !p.last {
		p.changed.Wait()
	}
	if p.closed || p.last {
		return false
	}
	p.waiting = append(p.waiting, r)
	return true
}

// front returns the request that the server's next bytes answer. If there is
// none, they are unasked (as a 408 before a server closes), and nothing may
// follow them; ok is false then if the client may not even get those.
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

// pop notes that the oldest request is fully answered.
func (p *pipeline) pop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = p.waiting[:copy(p.waiting, p.waiting[1:])]
	p.tell()
}

// switched notes that the server has agreed to another protocol.
func (p *pipeline) switched() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raw = true
	p.tell()
}

// settle waits until every request is answered, or the last one by a switch of
// protocols, which is what it returns. Meanwhile it calls read, which keeps what
// it reads: the client may give up. resume is called after a read that was interrupted.
func (p *pipeline) settle(read func() error, resume func()) (raw bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 && !p.raw && !p.last && !p.closed {
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
			// At its end, what the client has said too early is lost: an answer
			// that may never come is not waited for.
			return false, err
		}
	}
	if p.raw {
		return true, nil
	}
	if p.last || p.closed {
		return false, &writeError{errFinished}
	}
	return false, nil
}

// end notes that nothing follows the response at hand.
func (p *pipeline) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = true
	p.tell()
}

// drain waits until every request is answered. If it returns true, the caller
// may write to the client, at a boundary between messages, until resume.
func (p *pipeline) drain() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 && !p.closed && !p.last {
		p.changed.Wait()
	}
	p.quiet = !p.closed && !p.last
	return p.quiet
}

func (p *pipeline) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = false
}

// close wakes everyone: a direction has ended.
func (p *pipeline) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.tell()
}
