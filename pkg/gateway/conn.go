package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/race"
	"github.com/agent-init/agent-init/pkg/audit"
)

// conn is one redirected connection, with one goroutine until it is judged, and one for each direction after that.
type conn struct {
	s      *Server
	began  time.Time
	peer   netip.AddrPort // who has made it
	client *net.TCPConn
	from   *source        // of client
	to     netip.AddrPort // the original destination
	at     netip.AddrPort // where it goes on to, which is the same until another address answers in its place
	own    bool           // it came to one of Config.Own, and does not go on yet
	places []netip.Addr   // where it may go on to then
	work   *sync.WaitGroup
	stop   context.CancelFunc // ends what the judging waits for

	leased []string // names that this address was leased to when they were first used
	first  ruling   // what the event of the connection is about

	out, in atomic.Int64 // bytes to the server, to the client
	active  atomic.Int64 // when the last byte came: nanoseconds since began
	by      atomic.Pointer[audit.Process]

	mu      sync.Mutex
	server  *net.TCPConn // nil until connected
	uses    []use        // oldest first: what Recheck looks at
	users   int          // goroutines, each of which calls done
	ended   int          // directions that came to their end
	broken  bool         // a write failed: the reader of that socket will see why
	passed  bool         // what it is used for is passed on here, and not handed over
	handed  bool         // it is the broker's
	proxied bool         // it goes by the upstream proxy
	proxy   string       // which one
	over    bool
	result  audit.Verdict
	reason  string
}

func (c *conn) serve(ctx context.Context, own netip.AddrPort) {
	defer c.done()
	defer c.stop()
	if err := c.prepare(own); err != nil {
		c.refuse(err)
		return
	}
	var err error
	r, direct := c.direct(ctx)
	switch {
	case direct:
		err = c.serveDirect(ctx, r)
	default:
		err = c.serveNamed(ctx)
	}
	c.s.conns.judged(c)
	if err != nil {
		c.refuse(err)
	}
}

// serveNamed judges a connection by the name inside. On a port that may carry TLS or HTTP, the first byte tells: no method
// begins as a record of a handshake does (RFC 9112, section 3; RFC 8446, section 5.1).
func (c *conn) serveNamed(ctx context.Context) error {
	switch c.to.Port() {
	case tlsPort:
		return c.serveTLS(ctx)
	case webPort:
		return c.serveHTTP(ctx)
	}
	c.client.SetReadDeadline(c.began.Add(c.s.limits.hello))
	if err := c.from.fill(); err != nil {
		return err
	}
	if c.from.held()[0] == recordHandshake {
		return c.serveTLS(ctx)
	}
	return c.serveHTTP(ctx)
}

func (c *conn) prepare(own netip.AddrPort) error {
	to, err := c.s.original(c.client)
	if err != nil || !to.IsValid() {
		c.s.config.Log.Debug("no original destination", "error", err)
		return refusedNoOriginal
	}
	c.to = unmap(to)
	c.at = c.to
	if c.to == own || c.to == unmap(c.client.LocalAddr().(*net.TCPAddr).AddrPort()) {
		return refusedDirect
	}
	c.own = slices.Contains(c.s.config.Own, c.to.Addr())
	if err := c.client.SetKeepAliveConfig(keepAlive); err != nil {
		return err
	}
	c.from, err = newSource(c.client)
	return err
}

func (c *conn) connect(ctx context.Context, r ruling) (*source, error) {
	c.first = r
	if !r.allowed {
		return nil, r
	}
	switch {
	case c.own: // by somebody on another machine
	case r.enforce != "":
		c.findOut(c.s.config.Find)
	default:
		c.look()
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.dial)
	defer cancel()
	server, at, err := c.goOn(ctx, r)
	if err != nil {
		verdict := audit.Allow // the server's refusal, not ours
		if r.proxied {
			verdict = audit.Deny // there may be another way, which is not taken
		}
		c.end(verdict, "could not connect: "+reasonOf(err))
		return nil, err
	}
	if at != c.at && !c.moved(at, r) {
		abort(server)
		return nil, refusedRevoked
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
	// A policy that has come since was asked about where the connection was going to, and not about this.
	if !c.stands(c.s.config.Policy(), map[use]ruling{}) {
		return nil, net.ErrClosed
	}
	if !c.aside(r.name) {
		c.s.allowed.Add(1)
	}
	return newSource(server)
}

// onward connects to an address, straight or by the upstream proxy. One way is never tried for the other.
func (c *conn) onward(ctx context.Context, r ruling, to netip.AddrPort) (*net.TCPConn, error) {
	if !r.proxied {
		return c.s.dial(ctx, to)
	}
	c.mu.Lock()
	c.proxied, c.proxy = true, c.s.config.Policy().Settings.UpstreamProxy.String()
	c.mu.Unlock()
	if c.s.config.Proxied == nil {
		return nil, refusedProxied
	}
	return c.s.config.Proxied(ctx, r.leased(), to)
}

// otherWay says whether what r is about would go another way than c does.
func (c *conn) otherWay(r ruling) bool {
	p := c.s.config.Policy()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server != nil && (r.proxied != c.proxied || c.proxied && c.proxy != p.Settings.UpstreamProxy.String())
}

// reasonOf strips addresses and operations, which the event has already.
func reasonOf(err error) string {
	others := ""
	if all, ok := errors.AsType[*race.Failed](err); ok {
		err, others = all.First, all.Others()
	}
	var op *net.OpError
	for errors.As(err, &op) {
		err = op.Err
	}
	return err.Error() + others
}

// claim notes what the connection is about to be used for. It comes before the decision,
// so that a Recheck sees the use or comes before the decision's look at the policy.
func (c *conn) claim(u use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses = append(c.uses, u)
}

// unclaim drops the oldest use if there are more than least.
func (c *conn) unclaim(least int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.uses) > least {
		c.uses = slices.Delete(c.uses, 0, 1)
	}
}

// still is how long nothing has moved.
func (c *conn) still(now time.Time) time.Duration {
	return now.Sub(c.began) - time.Duration(c.active.Load())
}

// isPassed says whether c is passed on by the gate, or may be.
func (c *conn) isPassed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

func (c *conn) claims() []use {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.uses)
}

// end resets both sides, and close ends the connection in peace. The first call says how it ended.
func (c *conn) end(v audit.Verdict, reason string)   { c.conclude(v, reason, true) }
func (c *conn) close(v audit.Verdict, reason string) { c.conclude(v, reason, false) }

func (c *conn) conclude(v audit.Verdict, reason string, reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.result, c.reason = true, v, reason
	c.stop()
	for _, side := range []*net.TCPConn{c.client, c.server} {
		switch {
		case side == nil:
		case reset:
			abort(side)
		default:
			side.Close()
		}
	}
}

// tell sends the client the last that it gets, and waits for it to have read that. It returns false if it can't be told.
func (c *conn) tell(down *sink, last []byte) bool {
	c.client.SetDeadline(time.Now().Add(time.Second))
	if write(down, last) != nil || c.client.CloseWrite() != nil {
		return false
	}
	// Closing with bytes unread would be a reset, and take it back.
	for range 16 {
		c.from.take(len(c.from.held()))
		if c.from.fill() != nil {
			break
		}
	}
	return true
}

func abort(conn *net.TCPConn) error {
	conn.SetLinger(0)
	return conn.Close()
}

func (c *conn) refuse(err error) {
	if c.from != nil && !c.from.spoke && (err == io.EOF || errors.Is(err, syscall.ECONNRESET)) {
		c.end(audit.Info, refusedHungUp.Error()) // who only looks whether a port is open was denied nothing
		return
	}
	reason := reasonOf(err)
	if no, ok := errors.AsType[denial](err); ok {
		c.findOut(c.s.config.Find)
		reason = no.Error()
	} else if err == io.EOF || err == io.ErrUnexpectedEOF {
		reason = refusedHungUp.Error()
	} else if late(err) {
		reason = refusedTimeout.Error()
	}
	c.end(audit.Deny, reason)
}

// late says whether err is that a peer took too long.
func late(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// findOut finds who has made the connection, if it can be told, for its event.
func (c *conn) findOut(find audit.Finder) *audit.Process {
	by := c.by.Load()
	if !c.peer.IsValid() || !c.to.IsValid() || by != nil {
		return by
	}
	if by = find("tcp", c.peer, c.to); by != nil { // else somebody may have found it meanwhile
		c.by.Store(by)
	}
	return by
}

// look has it found meanwhile, if there is leave to. The event waits for that.
func (c *conn) look() {
	find := c.s.config.FindAllowed()
	if find == nil {
		return
	}
	c.mu.Lock()
	c.users++
	c.mu.Unlock()
	go func() {
		defer c.done()
		c.findOut(find)
	}()
}

// aside says whether what the connection is used for, under name, is not to be counted.
func (c *conn) aside(name string) bool { return c.to.IsValid() && c.s.config.Aside(name, c.at.Addr()) }

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
	c.record()
	c.work.Done()
}

func (c *conn) record() {
	first := c.first
	e := audit.Event{Kind: audit.Connect, Verdict: c.result, Enforce: first.enforce, Name: first.name, Proto: "tcp", Rule: first.rule.String(),
		Reason: c.reason, Out: uint64(c.out.Load()), In: uint64(c.in.Load()), Millis: uint64(time.Since(c.began).Milliseconds())}
	if by := first.via; by.name != "" {
		e.Name, e.Rule = by.name, by.rule.String()
	}
	if c.to.IsValid() {
		e.IP, e.Port = c.at.Addr().String(), c.at.Port()
	}
	if c.at != c.to && !slices.Contains(c.s.config.Own, c.to.Addr()) {
		e.Reason += "; " + c.to.Addr().String() + " did not answer"
	}
	if first.enforce != "" {
		e.Reason = first.Error() + "; " + e.Reason
	}
	if c.server == nil && !c.handed && c.result != audit.Info && !c.aside(first.name) {
		c.s.refused.Add(1)
	}
	c.s.config.Record(e.By(c.by.Load()))
}
