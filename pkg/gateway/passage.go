package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/nowait"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// passage is a conn of an express. The lock of the conn is held whenever its descriptors are used: whoever ends the
// connection closes them.
type passage struct {
	e      *express
	conn   *conn
	number int32
	fd     [2]int // by side; -1 for none
	stage  stage
	until  time.Time // a limit of the first two stages

	first []byte   // what the client has said, until that was passed on
	hello hello    // in there
	spoke bool     // the client, before the server could; or it has ended
	early uint32   // events of the server's, before it had the hello
	moved [2]int64 // bytes, by the side that they came from
	ended [2]bool  // no more come from there

	failed error // why it does not go on
}

const clientSide, serverSide = 0, 1

type stage uint8

const (
	listening stage = iota // to the client, for a ClientHello
	dialling               // the server
	asking                 // the server has the hello, and has not answered
	passing                // what comes, both ways
)

// hangUp are events behind which there is an end to be read.
const hangUp = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

// step is what is to be done without the lock.
type step func(*passage)

// happened is called by the express at events of one side.
func (p *passage) happened(side int, events uint32) {
	p.locked(func() step { return p.handle(side, events) })
}

func (p *passage) handle(side int, events uint32) step {
	switch {
	case p.stage == listening:
		return p.listen(events)
	case p.stage == dialling && side == serverSide:
		return p.connected(events)
	case p.stage == dialling:
		p.spoke = true
		return nil
	case p.stage == asking && side == serverSide:
		return p.answered(events)
	case p.stage == asking:
		return leaving // who says more before an answer, says something to look at
	}
	return p.pass(side, events)
}

func leaving(p *passage)     { p.leave([2][]byte{}) }
func judging(p *passage)     { p.judge() }
func wasReset(p *passage)    { p.end("reset", true) }
func endedOnce(p *passage)   { p.end("closed", true) }
func inPeace(p *passage)     { p.end("closed", false) }
func unreachable(p *passage) { p.end("could not connect: "+p.failed.Error(), true) }

// end ends the connection, if nobody else has, and records it.
func (p *passage) end(reason string, reset bool) {
	if p.conn.settle(audit.Allow, reason, reset) != nil {
		p.conn.done()
	}
}

// listen reads the ClientHello. What is none, and what has something behind it, is left to others.
func (p *passage) listen(events uint32) step {
	n, errno := nowait.Read(p.fd[clientSide], p.e.buffer[len(p.first):])
	switch {
	case errno == unix.EAGAIN:
		return nil
	case errno != 0: // which is said once
		p.failed = errno
		return leaving
	case n == 0:
		return leaving // which finds the same
	}
	p.spoke = events&hangUp != 0 // which is not said again
	copy(p.e.buffer[:], p.first)
	p.first = bytes.Clone(p.e.buffer[:len(p.first)+n])
	h, whole, ok := oneHello(p.first)
	switch {
	case !ok, !whole && p.spoke:
		return leaving
	case !whole:
		return nil
	}
	p.hello = h
	return judging
}

// oneHello reads a ClientHello that is all of b, in one record. It is not ok if that can't be one.
func oneHello(b []byte) (h hello, whole, ok bool) {
	n, err := fragment(b)
	size := recordHeader + n
	if err != nil || b[0] != recordHandshake || n >= 0 && len(b) > size {
		return h, false, false
	}
	if n < 0 || len(b) < size {
		return h, false, len(b) < bufferSize/2
	}
	message := b[recordHeader:]
	if n < 4 || message[0] != messageClientHello || int(message[1])<<16|int(message[2])<<8|int(message[3]) != n-4 {
		return h, false, false
	}
	h, err = parseHello(message[4:])
	return h, true, err == nil
}

// judge connects what the policy lets pass the gate, to an address that is known to be the name's. What anything else is
// said of is judged again, by who can say it.
func (p *passage) judge() {
	c := p.conn
	var r ruling
	name, ok := canonical(p.hello.name)
	if ok {
		u := use{name: name, to: c.to, hidden: p.hello.encrypted}
		c.claim(u)
		r = c.permit(u)
		ok = r.allowed && r.way == policy.Gated && !r.proxied && c.s.config.Known(name, c.to)
	}
	if !ok {
		c.unclaim(0)
		leaving(p)
		return
	}
	c.s.conns.judged(c)
	c.look()
	p.locked(func() step {
		c.first = r
		return p.dial()
	})
}

// locked does work with the lock, unless the connection has ended, and then what that returns without.
func (p *passage) locked(work func() step) {
	c := p.conn
	c.mu.Lock()
	var next step
	if c.passage == p {
		next = work()
	}
	c.mu.Unlock()
	if next != nil {
		next(p)
	}
}

// dial begins to connect to the server.
func (p *passage) dial() step {
	to := p.e.s.at(p.conn.to)
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return leaving
	}
	p.fd[serverSide] = fd
	if keepAlives(fd) != nil {
		return p.redial()
	}
	if errno := nowait.Connect(fd, to); errno != 0 && errno != unix.EINPROGRESS {
		return p.redial()
	}
	if p.e.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET, p.number, serverSide) != nil {
		return p.redial()
	}
	p.stage, p.until = dialling, time.Now().Add(p.e.s.limits.dial)
	return nil
}

// redial leaves a connection that could not be tried to who says why.
func (p *passage) redial() step {
	nowait.Close(p.fd[serverSide])
	p.fd[serverSide] = -1
	return leaving
}

// connected is called when the connecting has ended, one way or the other.
func (p *passage) connected(events uint32) step {
	fd := p.fd[serverSide]
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		var b [4]byte
		errno := unix.ECONNREFUSED
		if _, failed := nowait.Get(fd, unix.SOL_SOCKET, unix.SO_ERROR, b[:]); failed == 0 {
			errno = unix.Errno(binary.NativeEndian.Uint32(b[:]))
		}
		p.failed = os.NewSyscallError("connect", errno)
		return unreachable
	}
	if events&unix.EPOLLOUT == 0 {
		return nil
	}
	p.stage, p.early = asking, events&^unix.EPOLLOUT
	return greeting
}

// greeting passes the ClientHello on.
func greeting(p *passage) {
	c := p.conn
	if !c.aside(c.first.name) {
		c.s.allowed.Add(1)
	}
	p.locked(p.greet)
}

func (p *passage) greet() step {
	p.conn.connected = true
	n, errno := nowait.Write(p.fd[serverSide], p.first)
	p.count(serverSide, n)
	if p.first = p.first[n:]; errno != 0 {
		p.conn.broken = errno != unix.EAGAIN
		return leaving
	}
	p.first = nil
	if p.spoke {
		return leaving // as for what it says before an answer
	}
	if p.early != 0 {
		return p.answered(p.early)
	}
	return nil
}

// answered reads the server's first message. It may ask for another ClientHello, which is not looked at here.
func (p *passage) answered(events uint32) step {
	n, errno := nowait.Read(p.fd[serverSide], p.e.buffer[:])
	switch {
	case errno == unix.EAGAIN:
		return nil
	case errno != 0:
		return wasReset
	case n == 0:
		return leaving
	}
	said := p.e.buffer[:n]
	if ask, known := isRetry(said); ask || !known {
		return holding(serverSide, said)
	}
	p.stage = passing
	p.moved[serverSide] += int64(n)
	if next := p.write(clientSide, said); next != nil || drained(n, events) {
		return next
	}
	return p.pass(serverSide, events)
}

// drained says whether a read of n bytes at those events has taken all there was: less than there was room for, and no
// end behind it (epoll(7), questions and answers).
func drained(n int, events uint32) bool {
	return n < bufferSize && events&hangUp == 0
}

// pass passes on what has come from a side.
func (p *passage) pass(side int, events uint32) step {
	if p.ended[side] {
		if tcpClosed(p.fd[side]) {
			return endedOnce // by a reset
		}
		return nil
	}
	for {
		if p.moved[side] >= bulkAfter {
			return leaving // to where the kernel splices
		}
		n, errno := nowait.Read(p.fd[side], p.e.buffer[:])
		switch {
		case errno == unix.EAGAIN:
			return nil
		case errno != 0:
			return wasReset
		case n == 0:
			return p.half(side)
		}
		p.moved[side] += int64(n)
		if next := p.write(1-side, p.e.buffer[:n]); next != nil || drained(n, events) {
			return next
		}
	}
}

// write gives b to a side. What that does not take at once is left to who waits for it.
func (p *passage) write(side int, b []byte) step {
	n, errno := nowait.Write(p.fd[side], b)
	p.count(side, n)
	if errno != 0 {
		p.conn.broken = errno != unix.EAGAIN // who reads there is not told why any more
		return holding(1-side, b[n:])
	}
	return nil
}

func (p *passage) count(side, n int) {
	if side == serverSide {
		p.conn.moved(&p.conn.out, int64(n))
		return
	}
	p.conn.moved(&p.conn.in, int64(n))
}

// half passes the end of one direction on.
func (p *passage) half(side int) step {
	p.ended[side] = true
	switch {
	case p.ended[1-side]:
		return inPeace
	case nowait.Shutdown(p.fd[1-side], unix.SHUT_WR) != 0:
		return wasReset
	}
	return nil
}

// holding leaves the connection, with what was read of a side.
func holding(side int, b []byte) step {
	b = bytes.Clone(b)
	return func(p *passage) {
		var held [2][]byte
		held[side] = b
		p.leave(held)
	}
}

// leave gives the connection to goroutines of its own, with what was read and not passed on.
func (p *passage) leave(held [2][]byte) {
	c := p.conn
	c.mu.Lock()
	if c.passage != p { // it has ended
		c.mu.Unlock()
		return
	}
	ctx, stop := context.WithCancel(p.e.ctx)
	c.stop, c.passage = stop, nil
	p.e.forget(p)
	var err error
	if c.client, err = p.e.release(p.fd[clientSide]); p.fd[serverSide] >= 0 {
		var failed error
		c.server, failed = p.e.release(p.fd[serverSide])
		err = cmp.Or(err, failed)
	}
	c.mu.Unlock()
	if err != nil {
		c.refuse(err)
		c.done()
		return
	}
	go func() {
		defer c.done()
		p.carryOn(ctx, held)
	}()
}

// release takes fd out of the express. It is the connection's then, or reset.
func (e *express) release(fd int) (*net.TCPConn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	// What is registered there is the open file, which outlives the descriptor (epoll(7)).
	err := e.watch(unix.EPOLL_CTL_DEL, fd, 0, 0, 0)
	if err == nil || err == unix.ENOENT {
		var conn net.Conn
		if conn, err = net.FileConn(f); err == nil {
			tcp := conn.(*net.TCPConn)
			return tcp, tcp.SetKeepAliveConfig(keepAlive) // which FileConn has set otherwise
		}
	}
	resets(fd)
	return nil, fmt.Errorf("leave the express: %w", err)
}

// carryOn is what the express would have done next.
func (p *passage) carryOn(ctx context.Context, held [2][]byte) {
	c := p.conn
	var err error
	c.from, err = newSource(c.client)
	if err = cmp.Or(p.failed, err); err != nil {
		c.stop()
		c.refuse(err)
		return
	}
	c.from.moved = p.moved[clientSide]
	if c.server == nil {
		c.from.hold(p.first)
		c.judge(ctx)
		return
	}
	server, err := newSource(c.server)
	if err != nil {
		c.refuse(err)
		return
	}
	server.moved = p.moved[serverSide]
	c.from.hold(held[clientSide])
	server.hold(held[serverSide])
	if p.stage == passing {
		c.relay(server, p.rest(c.from, clientSide, c.toServer()), p.rest(server, serverSide, c.toClient()))
		return
	}
	c.relayTLS(server, p.hello, p.first)
}

// rest is what passes on what is still to come from a side. An end counts before the other direction may come to its own.
func (p *passage) rest(from *source, side int, to *sink) func() error {
	if p.ended[side] {
		p.conn.half(false)
		return func() error { return errPassedOn }
	}
	return func() error { return from.forward(to, untilEnd) }
}

// close ends both sides, and the use of their descriptors: by a reset, or in peace. The lock of the conn is held.
func (p *passage) close(reset bool) {
	p.e.forget(p)
	for _, fd := range p.fd {
		if fd < 0 {
			continue
		}
		if reset {
			resets(fd)
		}
		nowait.Close(fd)
	}
}

// resets has the closing of fd be a reset.
func resets(fd int) {
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}
