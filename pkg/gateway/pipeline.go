package gateway

import (
	"errors"
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
	methods []string // oldest first
	last    bool     // nothing can follow the response at hand
	quiet   bool     // the client's side is taken by drain
	closed  bool
}

func newPipeline() *pipeline {
	p := &pipeline{}
	p.changed.L = &p.mu
	return p
}

// push adds a request that is about to be passed on. It waits while there are
// too many, and returns false if no more may follow.
func (p *pipeline) push(method string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.methods) >= maxPipeline && !p.closed && !p.last {
		p.changed.Wait()
	}
	if p.closed || p.last {
		return false
	}
	p.methods = append(p.methods, method)
	return true
}

// front returns the method that the server's next bytes answer. If there is
// none, they are unasked (as a 408 before a server closes), and nothing may
// follow them; ok is false then if the client may not even get those.
func (p *pipeline) front() (method string, asked, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.methods) > 0 {
		return p.methods[0], true, true
	}
	p.last = true
	p.changed.Broadcast()
	return "", false, !p.quiet
}

// pop notes that the oldest request is fully answered.
func (p *pipeline) pop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.methods = p.methods[:copy(p.methods, p.methods[1:])]
	p.changed.Broadcast()
}

// end notes that nothing follows the response at hand.
func (p *pipeline) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = true
	p.changed.Broadcast()
}

// drain waits until every request is answered. If it returns true, the caller
// may write to the client, at a boundary between messages, until resume.
func (p *pipeline) drain() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.methods) > 0 && !p.closed && !p.last {
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
	p.changed.Broadcast()
}
