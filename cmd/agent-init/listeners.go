package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// dnsSockets are the loopback sockets that port 53 is redirected to. The keeper
// makes them and lends them to each guard, so that the ports belong to
// agent-init also while the guard is being restarted.
type dnsSockets struct {
	port4, port6 uint16
	files        []*os.File // UDP, TCP for each family
}

func openDNSSockets(ctx context.Context) (*dnsSockets, error) {
	s := &dnsSockets{}
	var err error
	if s.port4, err = s.open(ctx, "127.0.0.1", "4"); err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	if s.port6, err = s.open(ctx, "::1", "6"); err != nil {
		// No IPv6 loopback: port 53 over IPv6 is refused instead.
		if !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil, fmt.Errorf("listen for DNS: %w", err)
		}
		s.port6 = 0
	}
	return s, nil
}

// open binds one port, free for both protocols. The kernel chooses it: no port
// is taken from the agent's programs by a fixed choice.
func (s *dnsSockets) open(ctx context.Context, host, family string) (uint16, error) {
	// Redirected clients may speak MPTCP; the original destination is only to
	// be had from a plain TCP socket (net/mptcp/sockopt.c).
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	var err error
	for range 32 {
		var l net.Listener
		if l, err = lc.Listen(ctx, "tcp"+family, net.JoinHostPort(host, "0")); err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		var u net.PacketConn
		if u, err = lc.ListenPacket(ctx, "udp"+family, l.Addr().String()); err != nil {
			l.Close()
			continue
		}
		uf, e1 := u.(*net.UDPConn).File()
		lf, e2 := l.(*net.TCPListener).File()
		u.Close()
		l.Close()
		if err = errors.Join(e1, e2); err != nil {
			return 0, err
		}
		s.files = append(s.files, uf, lf)
		return uint16(port), nil
	}
	return 0, err
}

func (s *dnsSockets) pairs() int { return len(s.files) / 2 }
