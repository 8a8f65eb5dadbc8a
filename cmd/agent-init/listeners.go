package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// guardSockets are the loopback sockets that the agent's DNS and its TLS and
// HTTP connections are redirected to. The keeper makes them and lends them to
// each guard, so that the ports belong to agent-init also while the guard is
// being restarted.
type guardSockets struct {
	dns4, dns6   uint16 // ports; 0 if there is no such address
	gate4, gate6 uint16
	files        []*os.File // socketsPerFamily for each family
}

// socketsPerFamily: DNS over UDP, DNS over TCP, the name gate.
const socketsPerFamily = 3

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
// The kernel chooses them: no port is taken from the agent's programs.
func (s *guardSockets) open(ctx context.Context, host, family string) (dns, gate uint16, err error) {
	// Redirected clients may speak MPTCP; the original destination is only to
	// be had from a plain TCP socket (net/mptcp/sockopt.c).
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	any := net.JoinHostPort(host, "0")
	for range 32 {
		var l net.Listener
		if l, err = lc.Listen(ctx, "tcp"+family, any); err != nil {
			return 0, 0, err
		}
		var u net.PacketConn
		if u, err = lc.ListenPacket(ctx, "udp"+family, l.Addr().String()); err != nil {
			l.Close()
			continue
		}
		var g net.Listener
		if g, err = lc.Listen(ctx, "tcp"+family, any); err != nil {
			l.Close()
			u.Close()
			return 0, 0, err
		}
		files, err := files(u, l, g)
		if err != nil {
			return 0, 0, err
		}
		s.files = append(s.files, files...)
		return uint16(l.Addr().(*net.TCPAddr).Port), uint16(g.Addr().(*net.TCPAddr).Port), nil
	}
	return 0, 0, err
}

// files takes the descriptors out of the sockets and closes those.
func files(sockets ...interface{ Close() error }) ([]*os.File, error) {
	var out []*os.File
	var errs []error
	for _, s := range sockets {
		f, err := s.(interface{ File() (*os.File, error) }).File()
		s.Close()
		out, errs = append(out, f), append(errs, err)
	}
	return out, errors.Join(errs...)
}

func (s *guardSockets) families() int { return len(s.files) / socketsPerFamily }
