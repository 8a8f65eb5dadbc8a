package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/nowait"
	"github.com/agent-init/agent-init/pkg/budget"
)

// express serves a listener in one goroutine. It passes those TLS connections on that need nothing else, and leaves any
// other to goroutines of its own, as soon as that is known.
//
// A goroutine that becomes ready wakes up another thread, and three or four for each connection took the most of its cost.
// One that waits for all of them is woken where it is needed (docs/benchmarks.md).
type express struct {
	s        *Server
	ctx      context.Context
	work     *sync.WaitGroup
	listener int
	own      netip.AddrPort // of the listener
	paused   bool           // nothing is accepted until the next tick

	epoll  int
	file   *os.File // of epoll
	ready  syscall.RawConn
	buffer buffer

	early []*passage // those with a limit of time
	next  time.Time  // tick; zero for none

	mu     sync.Mutex // innermost of all
	open   map[int32]*passage
	number int32 // the last that was given
}

const (
	patience = 100 * time.Millisecond // for a first word, before a goroutine waits for it
	tickTime = patience / 2
	listens  = 0 // the number of the listener
)

// newExpress takes over what l listens on. l itself is still to be closed.
func newExpress(ctx context.Context, s *Server, l *net.TCPListener, work *sync.WaitGroup) (*express, error) {
	e := &express{s: s, ctx: ctx, work: work, listener: -1, own: unmap(l.Addr().(*net.TCPAddr).AddrPort()), open: map[int32]*passage{}}
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { e.listener, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if failed != nil || err != nil {
		return nil, errors.Join(failed, err)
	}
	if e.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		// So that the runtime's own poller waits for it.
		if err = unix.SetNonblock(e.epoll, true); err == nil {
			e.file = os.NewFile(uintptr(e.epoll), "epoll")
			e.ready, err = e.file.SyscallConn()
		} else {
			unix.Close(e.epoll)
		}
	}
	if err == nil {
		// What is accepted inherits it.
		err = errors.Join(keepAlives(e.listener), e.watch(unix.EPOLL_CTL_ADD, e.listener, unix.EPOLLIN, listens, 0))
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// keepAlives are what a net.Dialer sets of a connection (keepAlive).
func keepAlives(fd int) error {
	for _, o := range [...]struct {
		level, option int
		value         time.Duration
	}{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, time.Second}, // which is 1
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive.Idle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive.Interval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, time.Duration(keepAlive.Count) * time.Second},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, time.Second},
	} {
		if errno := nowait.Set(fd, o.level, o.option, int32(o.value/time.Second)); errno != 0 {
			return os.NewSyscallError("setsockopt", errno)
		}
	}
	return nil
}

func (e *express) watch(operation, fd int, events uint32, number, side int32) error {
	return unix.EpollCtl(e.epoll, operation, fd, &unix.EpollEvent{Events: events, Fd: number, Pad: side})
}

// wake has serve see the end of ctx. It closes nothing: the number of the epoll may be in use.
func (e *express) wake() { e.file.SetReadDeadline(time.Unix(1, 0)) }

func (e *express) close() {
	if e.file != nil {
		e.file.Close()
	}
	if e.listener >= 0 {
		unix.Close(e.listener)
	}
}

// serve returns once ctx has ended and it was woken, which is no error, or the listener fails.
func (e *express) serve() error {
	var events [64]unix.EpollEvent
	for e.ctx.Err() == nil { // looked at behind each change of the deadline, which wake may have made before
		var n int
		var errno unix.Errno
		err := e.ready.Read(func(uintptr) bool {
			n, errno = nowait.Poll(e.epoll, events[:])
			return n > 0 || errno != 0
		})
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case errno != 0 && errno != unix.EINTR:
			return os.NewSyscallError("epoll_pwait", errno)
		}
		for _, v := range events[:n] {
			if v.Fd == listens {
				err = e.accept()
			} else if p := e.find(v.Fd); p != nil {
				p.happened(int(v.Pad), v.Events)
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
		}
		if err := e.tick(); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many connections are accepted before those that are open have their turn.
const atOnce = 16

func (e *express) accept() error {
	for range atOnce {
		fd, peer, errno := nowait.Accept(e.listener)
		switch {
		case errno == 0:
			e.begin(fd, peer)
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return nil
		case budget.Scarce(errno):
			e.s.config.Log.Warn("no connection can be accepted", "on", e.own, "error", errno)
			e.paused = true
			e.hurry()
			return e.watch(unix.EPOLL_CTL_MOD, e.listener, 0, listens, 0)
		default:
			return os.NewSyscallError("accept4", errno)
		}
	}
	return nil
}

// begin takes a connection in that was accepted.
func (e *express) begin(fd int, peer netip.AddrPort) {
	p := &passage{e: e, fd: [2]int{fd, -1}}
	c := &conn{s: e.s, began: time.Now(), peer: unmap(peer), work: e.work, users: 1, passage: p}
	p.conn, p.until = c, c.began.Add(patience)
	local := nowait.Local(fd)
	to, err := e.s.original(fd, local)
	p.failed = c.locate(to, err, local, e.own)
	e.enter(p)
	e.work.Add(1)
	if !e.s.admit(c) {
		return
	}
	if p.failed != nil || c.own || c.to.Port() == webPort {
		leaving(p)
		return
	}
	e.early = append(e.early, p)
	e.hurry()
	p.locked(func() step {
		p.failed = e.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLET, p.number, clientSide)
		if p.failed != nil {
			return leaving
		}
		return nil
	})
}

// enter gives p a number that no other has.
func (e *express) enter(p *passage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for taken := true; taken; _, taken = e.open[e.number] {
		e.number = max(1, e.number+1)
	}
	p.number = e.number
	e.open[e.number] = p
}

func (e *express) find(number int32) *passage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open[number]
}

func (e *express) forget(p *passage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, p.number)
}

// hurry has tick look soon.
func (e *express) hurry() {
	if e.next.IsZero() {
		e.next = time.Now().Add(tickTime)
		e.file.SetReadDeadline(e.next)
	}
}

// tick looks at what has a limit of time, of which there is a bounded number.
func (e *express) tick() error {
	now := time.Now()
	if e.next.IsZero() || now.Before(e.next) {
		return nil
	}
	if e.paused {
		e.paused = false
		if err := e.watch(unix.EPOLL_CTL_MOD, e.listener, unix.EPOLLIN, listens, 0); err != nil && e.ctx.Err() == nil {
			return fmt.Errorf("accept again: %w", err)
		}
	}
	left := e.early[:0]
	for _, p := range e.early {
		if p.waits(now) {
			left = append(left, p)
		}
	}
	clear(e.early[len(left):])
	e.early = left
	e.next = time.Time{}
	e.file.SetReadDeadline(time.Time{})
	if len(left) > 0 {
		e.hurry()
	}
	return nil
}

// waits says whether p is to be looked at again, after what its limit brings.
func (p *passage) waits(now time.Time) bool {
	c := p.conn
	c.mu.Lock()
	over, stage, late := c.passage != p, p.stage, now.After(p.until)
	c.mu.Unlock()
	switch {
	case over || stage > dialling:
		return false
	case !late:
		return true
	case stage == dialling:
		p.failed = os.ErrDeadlineExceeded
		unreachable(p)
	default:
		leaving(p)
	}
	return false
}
