package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keepAlive finds peers that are gone, on both sides.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 30 * time.Second, Count: 4}

// dial is plain TCP: MPTCP would add subflows to addresses that nobody judged.
//
// For a context that can end, a net.Dialer starts a goroutine. On an idle machine that
// wakes another processor, which takes longer than the connecting. So it gets one that
// can't, and the end of ctx shuts the socket.
func dial(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stop := func() bool { return true }
	d := net.Dialer{
		KeepAliveConfig: keepAlive,
		Control: func(_, _ string, raw syscall.RawConn) error {
			stop = context.AfterFunc(ctx, func() {
				// That ends a connect under way (net/ipv4/af_inet.c, inet_shutdown).
				raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
			})
			return nil
		},
	}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(context.WithoutCancel(ctx), "tcp", addr.String())
	switch {
	case stop() && err == nil:
		return conn.(*net.TCPConn), nil
	case ctx.Err() == nil && err != nil:
		return nil, err
	}
	if err == nil {
		conn.Close()
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, os.ErrDeadlineExceeded
	}
	return nil, ctx.Err()
}
