package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardSockets are the loopback sockets that the agent's DNS and its TLS and HTTP connections are redirected to. The
// keeper lends them to each guard, so that the ports stay agent-init's between two.
type guardSockets struct {
	dns4, dns6   uint16 // ports; 0 if there is no such address
	gate4, gate6 uint16
	files        []*os.File // stage.SocketsPerFamily for each family
	tcp          []*os.File // of these; UDP is not refused: questions may wait

	turnedAway []net.Listener // while there is no guard
	turning    sync.WaitGroup
}

func openGuardSockets(ctx context.Context) (*guardSockets, error) {
	s := &guardSockets{}
	var err error
	if s.dns4, s.gate4, err = s.open(ctx, "127.0.0.1", "4"); err != nil {
		return nil, fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	if s.dns6, s.gate6, err = s.open(ctx, "::1", "6"); err != nil {
		// No IPv6 loopback: what would be redirected is refused instead.
		if !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil, fmt.Errorf("listen on ::1: %w", err)
		}
	}
	return s, nil
}

// open binds one port that is free for UDP and TCP, and another one for TCP.
// The kernel proposes them: no port is taken from the agent's programs.
func (s *guardSockets) open(ctx context.Context, host, family string) (dns, gate uint16, err error) {
	// Redirected clients may speak MPTCP; the original destination is only to
	// be had from a plain TCP socket (net/mptcp/sockopt.c).
	lc := net.ListenConfig{Control: keepPort}
	lc.SetMultipathTCP(false)
	for range 32 {
		var l, g net.Listener
		var u net.PacketConn
		if l, err = listenOnFree(ctx, &lc, host, family); err != nil {
			continue
		}
		if u, err = lc.ListenPacket(ctx, "udp"+family, l.Addr().String()); err == nil {
			if g, err = listenOnFree(ctx, &lc, host, family); err == nil {
				dns, gate = uint16(l.Addr().(*net.TCPAddr).Port), uint16(g.Addr().(*net.TCPAddr).Port)
				files, err := files(u, l, g)
				s.files, s.tcp = append(s.files, files...), append(s.tcp, files[1:]...)
				return dns, gate, err
			}
			u.Close()
		}
		l.Close()
	}
	return 0, 0, err
}

// listenOnFree listens on a free port, by its number: a socket keeps a port that it asked for by number when it stops
// listening, and no other (tcp_set_state in net/ipv4/tcp.c).
func listenOnFree(ctx context.Context, lc *net.ListenConfig, host, family string) (net.Listener, error) {
	l, err := lc.Listen(ctx, "tcp"+family, net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	return lc.Listen(ctx, "tcp"+family, addr)
}

// keepPort makes a socket's port its own also if it does not listen, which a guard that was taken over may bring
// about: with SO_REUSEADDR, which Go sets, another socket could listen there then.
func keepPort(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) }); e != nil {
		return e
	}
	return err
}

// accept leaves connections to a guard that is about to start.
func (s *guardSockets) accept() error {
	for _, l := range s.turnedAway {
		l.Close()
	}
	s.turnedAway = nil
	s.turning.Wait()
	var errs []error
	for _, f := range s.tcp {
		fd := int(f.Fd())
		// The last guard may have set or shut down what it was lent. For one that listens still this changes nothing.
		errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0), unix.Listen(fd, unix.SOMAXCONN))
	}
	return errors.Join(errs...)
}

// refuse resets connections at once while there is no guard, those that wait included. The sockets never stop
// listening: the kernel lets nobody else have a port that is listened at, whatever options he sets
// (inet_bind_conflict in net/ipv4/inet_connection_sock.c), while one that does not listen needs SO_REUSEADDR to start
// again beside the connections of the last guard, and could be had by others for that moment.
func (s *guardSockets) refuse() error {
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

// files takes the descriptors out of the sockets and closes those.
func files(sockets ...interface{ Close() error }) ([]*os.File, error) {
	var out []*os.File
	var errs []error
	for _, s := range sockets {
		f, err := lend(s.(syscall.Conn))
		s.Close()
		out, errs = append(out, f), append(errs, err)
	}
	return out, errors.Join(errs...)
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
