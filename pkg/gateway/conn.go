package gateway

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// conn is one redirected connection. It is served by one goroutine until it is
// judged, and by one for each direction after that.
type conn struct {
	s        *Server
	began    time.Time
	client   *net.TCPConn
	from     *source        // of client
	to       netip.AddrPort // the original destination
	sniffing *list.Element  // registry's
	work     *sync.WaitGroup

	leased []string // names that this address was leased to when they were first used

	out, in atomic.Int64 // bytes to the server, to the client
	active  atomic.Int64 // Server.clock of the last byte

	mu     sync.Mutex
	stop   context.CancelFunc // ends what the judging waits for
	server *net.TCPConn       // nil until connected
	uses   []use              // oldest first: what Recheck looks at
	first  ruling             // see judge
	users  int                // goroutines
	ended  int                // directions that came to their end
	broken bool               // a write failed: the reader of that socket will see why
	over   bool
	result audit.Verdict
	reason string
	by     *audit.Process // who has made it

	finding sync.WaitGroup // for by, of a connection that is passed on
}

// newConn returns a conn with one user.
func newConn(s *Server, client *net.TCPConn, work *sync.WaitGroup) *conn {
	work.Add(1)
	c := &conn{s: s, began: time.Now(), client: client, work: work, users: 1}
	c.active.Store(s.clock())
	return c
}

// serve judges the connection and passes it on.
func (c *conn) serve(ctx context.Context, own netip.AddrPort) {
	defer c.done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.mu.Lock()
	c.stop = stop
	if c.over {
		stop()
	}
	c.mu.Unlock()
	if err := c.prepare(own); err != nil {
		c.refuse(err)
		return
	}
	var err error
	r, direct := c.direct(ctx)
	switch {
	case direct:
		err = c.serveDirect(ctx, r)
	case c.to.Port() == tlsPort:
		err = c.serveTLS(ctx)
	case c.to.Port() == webPort:
		err = c.serveHTTP(ctx)
	default:
		err = refusedPort
	}
	c.s.conns.judged(c)
	if err != nil {
		c.refuse(err)
	}
}

// prepare finds out where the connection was going to.
func (c *conn) prepare(own netip.AddrPort) error {
	to, err := c.s.config.Original(c.client)
	if err != nil || !to.IsValid() {
		c.s.config.Log.Debug("no original destination", "error", err)
		return refusedNoOriginal
	}
	c.to = unmap(to)
	local := c.client.LocalAddr().(*net.TCPAddr).AddrPort()
	if c.to == own || c.to == unmap(local) {
		return refusedDirect
	}
	if err := c.client.SetKeepAliveConfig(keepAlive()); err != nil {
		return err
	}
	c.from, err = newSource(c.client, c.s.buffers)
	return err
}

// judge notes the first ruling, which is what the event of the connection is about.
func (c *conn) judge(r ruling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = r
}

// judgement returns the first ruling.
func (c *conn) judgement() ruling {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// connect opens the onward connection for what r allowed.
func (c *conn) connect(ctx context.Context, r ruling) (*source, error) {
	ctx, cancel := context.WithTimeout(ctx, c.s.config.Limits.DialTime)
	defer cancel()
	c.judge(r)
	if r.enforce != "" {
		c.findOut(c.s.config.Find)
	} else {
		c.finding.Go(func() { c.findOut(c.s.config.FindAllowed) })
	}
	server, err := c.s.config.Dial(ctx, c.to)
	if err != nil {
		return nil, &dialError{err}
	}
	c.mu.Lock()
	over := c.over
	if !over {
		c.server = server
	}
	c.mu.Unlock()
	if over {
		abort(server)
		return nil, net.ErrClosed
	}
	if !c.aside(r.name) {
		c.s.stats.allowed.Add(1)
	}
	return newSource(server, c.s.buffers)
}

// dialError is a server's refusal, not ours.
type dialError struct{ err error }

func (e *dialError) Error() string { return "could not connect: " + reasonOf(e.err) }

// reasonOf strips addresses and operations, which the event has already.
func reasonOf(err error) string {
	var op *net.OpError
	for errors.As(err, &op) {
		err = op.Err
	}
	return err.Error()
}

// claim notes that the connection is about to be used for u. It comes before
// the decision, so that a Recheck either sees the use or comes before the
// decision's look at the policy.
func (c *conn) claim(u use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses = append(c.uses, u)
}

// unclaim drops the oldest use. The last one stays for as long as the
// connection does.
func (c *conn) unclaim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.uses) > 1 {
		c.uses = c.uses[:copy(c.uses, c.uses[1:])]
	}
}

// disclaim drops every use: the connection is about to be judged by another one.
func (c *conn) disclaim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses = nil
}

// claims returns what the connection is used for.
func (c *conn) claims() []use {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]use(nil), c.uses...)
}

// end resets both sides. The first call says how it ended.
func (c *conn) end(v audit.Verdict, reason string) bool { return c.conclude(v, reason, abort) }

// close ends the connection in peace.
func (c *conn) close(v audit.Verdict, reason string) {
	c.conclude(v, reason, func(conn *net.TCPConn) { conn.Close() })
}

func (c *conn) conclude(v audit.Verdict, reason string, how func(*net.TCPConn)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.over, c.result, c.reason = true, v, reason
	if c.stop != nil {
		c.stop()
	}
	how(c.client)
	if c.server != nil {
		how(c.server)
	}
	return true
}

// abort closes conn with a reset.
func abort(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// refuse ends a connection that is not passed on.
func (c *conn) refuse(err error) {
	var (
		r       denial
		dialing *dialError
		timeout net.Error
	)
	switch {
	case errors.As(err, &r):
		c.findOut(c.s.config.Find)
		c.end(audit.Deny, r.Error())
	case errors.As(err, &dialing):
		c.end(audit.Allow, dialing.Error())
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		c.end(audit.Deny, refusedHungUp.Error())
	case errors.As(err, &timeout) && timeout.Timeout():
		c.end(audit.Deny, refusedTimeout.Error())
	default:
		c.end(audit.Deny, reasonOf(err))
	}
}

// findOut finds who has made the connection, as far as it can be told, and notes it
// for its event.
func (c *conn) findOut(find audit.Finder) *audit.Process {
	from, ok := c.client.RemoteAddr().(*net.TCPAddr)
	if !ok || !c.to.IsValid() {
		return nil
	}
	c.mu.Lock()
	by := c.by
	c.mu.Unlock()
	if by != nil {
		return by
	}
	by = find("tcp", unmap(from.AddrPort()), c.to)
	if by != nil { // else somebody may have found it meanwhile
		c.mu.Lock()
		c.by = by
		c.mu.Unlock()
	}
	return by
}

// aside says whether what the connection is used for, under name, is not to be counted.
func (c *conn) aside(name string) bool {
	return c.s.config.Aside != nil && c.to.IsValid() && c.s.config.Aside(name, c.to.Addr())
}

// done is called by each user once. The last one records the connection.
func (c *conn) done() {
	c.mu.Lock()
	c.users--
	last := c.users == 0
	c.mu.Unlock()
	if !last {
		return
	}
	c.end(audit.Fault, "bug: nobody ended the connection")
	if c.from != nil {
		c.from.release()
	}
	c.s.conns.remove(c)
	c.finding.Wait()
	c.record()
	c.work.Done()
}

// record writes the one event of the connection.
func (c *conn) record() {
	first := c.judgement()
	e := audit.Event{Kind: audit.Connect, Verdict: c.result, Enforce: first.enforce, Name: first.name, Proto: "tcp", Rule: first.rule.String(), Reason: c.reason}
	if by := first.via; by.name != "" {
		e.Name, e.Rule = by.name, by.rule.String()
	}
	if c.to.IsValid() {
		e.IP, e.Port = c.to.Addr().String(), c.to.Port()
	}
	if first.enforce != "" {
		c.reason = first.reason() + "; " + c.reason
		e.Reason = c.reason
	}
	e.Out, e.In, e.Millis = uint64(c.out.Load()), uint64(c.in.Load()), uint64(time.Since(c.began).Milliseconds())
	if c.server != nil {
		c.s.stats.out.Add(e.Out)
		c.s.stats.in.Add(e.In)
	} else if !c.aside(first.name) {
		c.s.stats.refused.Add(1)
	}
	c.s.config.Record(e.By(c.by))
}
