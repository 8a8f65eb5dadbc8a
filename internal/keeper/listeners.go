package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lent are loopback sockets that the keeper holds, and lends to each process of a service, so that the ports stay
// agent-init's between two.
type lent struct {
	files []*os.File // for each address family the same
	tcp   []*os.File // of these; UDP is not refused: questions may wait

	turnedAway []net.Listener // while there is no process
	turning    sync.WaitGroup
}

// guardSockets are what the agent's DNS and its TLS and HTTP connections are redirected to: for each family
// stage.SocketsPerFamily.
type guardSockets struct {
	lent
	dns4, dns6   uint16 // ports; 0 if there is no such address
	gate4, gate6 uint16
	dns, gate    []netip.AddrPort // at a gateway's own addresses
}

// openGuardSockets opens them on loopback, and for a gateway's agents at these addresses as well.
func openGuardSockets(ctx context.Context, hosts ...string) (*guardSockets, error) {
	s := &guardSockets{}
	err := onLoopback(func(host, family string) (err error) {
		dns, gate := &s.dns4, &s.gate4
		if family == "6" {
			dns, gate = &s.dns6, &s.gate6
		}
		*dns, *gate, err = s.open(ctx, host, family)
		return err
	})
	for _, host := range hosts {
		if err != nil {
			return s, err
		}
		var dns, gate uint16
		a := netip.MustParseAddr(host)
		dns, gate, err = s.open(ctx, host, familyOf(a))
		s.dns, s.gate = append(s.dns, netip.AddrPortFrom(a, dns)), append(s.gate, netip.AddrPortFrom(a, gate))
	}
	return s, err
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

// onLoopback opens sockets on the address of each family. Without one of IPv6, what would be redirected there is
// refused instead.
func onLoopback(open func(host, family string) error) error {
	if err := open("127.0.0.1", "4"); err != nil {
		return fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	if err := open("::1", "6"); err != nil && !noAddress(err) {
		return fmt.Errorf("listen on ::1: %w", err)
	}
	return nil
}

func noAddress(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// plainTCP makes sockets that don't speak MPTCP: the original destination of a redirected client is only to be had from
// a plain one (net/mptcp/sockopt.c).
func plainTCP() *net.ListenConfig {
	lc := &net.ListenConfig{Control: keepPort}
	lc.SetMultipathTCP(false)
	return lc
}

// open binds one port that is free for UDP and TCP, and another one for TCP.
// The kernel proposes them: no port is taken from the agent's programs.
func (s *guardSockets) open(ctx context.Context, host, family string) (dns, gate uint16, err error) {
	lc := plainTCP()
	for range 32 {
		var l, g net.Listener
		var u net.PacketConn
		if l, err = listenByNumber(ctx, lc, host, family, 0); err != nil {
			continue
		}
		if u, err = lc.ListenPacket(ctx, "udp"+family, l.Addr().String()); err == nil {
			if g, err = listenByNumber(ctx, lc, host, family, 0); err == nil {
				return portOf(l), portOf(g), s.take(u, l, g)
			}
			u.Close()
		}
		l.Close()
	}
	return 0, 0, err
}

// brokerSockets are what the agent asks the broker at: one port, on each family's loopback address, or on a gateway's
// own addresses.
type brokerSockets struct {
	lent
	port uint16
	at   []netip.AddrPort // of a gateway
}

func openBrokerSockets(ctx context.Context, hosts ...string) (*brokerSockets, error) {
	var err error
	on := onLoopback
	if len(hosts) > 0 {
		on = func(open func(host, family string) error) (err error) {
			for _, h := range hosts {
				if err == nil {
					err = open(h, familyOf(netip.MustParseAddr(h)))
				}
			}
			return err
		}
	}
	for range 32 { // what is free on one address may be taken on the other
		s, lc := &brokerSockets{}, plainTCP()
		var open []io.Closer
		err = on(func(host, family string) error {
			l, err := listenByNumber(ctx, lc, host, family, s.port)
			if err == nil {
				s.port, open = portOf(l), append(open, l)
			}
			return err
		})
		for _, h := range hosts {
			s.at = append(s.at, netip.AddrPortFrom(netip.MustParseAddr(h), s.port))
		}
		if err == nil {
			return s, s.take(open...)
		}
		for _, l := range open {
			l.Close()
		}
	}
	return nil, err
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// take makes sockets the keeper's to lend.
func (s *lent) take(sockets ...io.Closer) error {
	var errs []error
	for _, c := range sockets {
		f, err := lend(c.(syscall.Conn))
		c.Close()
		if errs = append(errs, err); f == nil {
			continue
		}
		s.files = append(s.files, f)
		if _, tcp := c.(net.Listener); tcp {
			s.tcp = append(s.tcp, f)
		}
	}
	return errors.Join(errs...)
}

// listenByNumber listens on a port, or a free one in the place of 0, by its number: a socket keeps a port that it asked
// for by number when it stops listening, and no other (tcp_set_state in net/ipv4/tcp.c).
func listenByNumber(ctx context.Context, lc *net.ListenConfig, host, family string, port uint16) (net.Listener, error) {
	l, err := lc.Listen(ctx, "tcp"+family, net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil || port != 0 {
		return l, err
	}
	addr := l.Addr().String()
	l.Close()
	return lc.Listen(ctx, "tcp"+family, addr)
}

// keepPort makes a socket's port its own also if it does not listen, which a process that was taken over may bring
// about: with SO_REUSEADDR, which Go sets, another socket could listen there then.
func keepPort(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) }); e != nil {
		return e
	}
	return err
}

// accept leaves connections to a process that is about to start.
func (s *lent) accept() error {
	for _, l := range s.turnedAway {
		l.Close()
	}
	s.turnedAway = nil
	s.turning.Wait()
	var errs []error
	for _, f := range s.tcp {
		fd := int(f.Fd())
		// The last one may have set or shut down what it was lent. For one that listens still this changes nothing.
		errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0), unix.Listen(fd, unix.SOMAXCONN))
	}
	return errors.Join(errs...)
}

// refuse resets connections at once while there is no process, those that wait included. The sockets never stop
// listening: the kernel lets nobody else have a port that is listened at, whatever options he sets
// (inet_bind_conflict in net/ipv4/inet_connection_sock.c), while one that does not listen needs SO_REUSEADDR to start
// again beside the connections of the last process, and could be had by others for that moment.
func (s *lent) refuse() error {
	if s.turnedAway != nil {
		return nil
	}
	var errs []error
	for _, f := range s.tcp {
		l, err := net.FileListener(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.turnedAway = append(s.turnedAway, l)
		s.turning.Go(func() { turnAway(l) })
	}
	return errors.Join(errs...)
}

// turnAway resets each connection that comes in, until l is closed. It waits in Go's
// poller, and so needs no thread where none can be had.
func turnAway(l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptor is free
			time.Sleep(10 * time.Millisecond)
		default:
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}
}

// lend returns a descriptor of s that is to be used by another process only. It is
// a blocking one, since the Go runtime's poller watches all that are not: each
// question to the guard, and each connection, would wake this process up too.
func lend(s syscall.Conn) (*os.File, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(old uintptr) {
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, false)
		}
	}); e != nil {
		return nil, e
	}
	if fd < 0 {
		return nil, fmt.Errorf("duplicate a socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "lent"), err
}
