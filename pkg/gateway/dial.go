package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/nowait"
)

// keepAlive finds peers that are gone, on both sides.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 30 * time.Second, Count: 4}

// dial is plain TCP: MPTCP would add subflows to addresses that nobody judged.
//
// For a context that can end, a net.Dialer starts a goroutine. On an idle machine that wakes another processor, which
// takes longer than the connecting. So it gets one that can't, and the end of ctx is the socket's.
func dial(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stop := func() bool { return true }
	d := net.Dialer{
		KeepAliveConfig: keepAlive,
		Control: func(_, _ string, raw syscall.RawConn) error {
			stop = context.AfterFunc(ctx, func() { abandon(raw) })
			return nil
		},
	}
	d.Deadline, _ = ctx.Deadline()
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(context.WithoutCancel(ctx), "tcp", addr.String())
	switch {
	case stop() && err == nil:
		return conn.(*net.TCPConn), nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, os.ErrDeadlineExceeded
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

// abandon ends a connect that is under way, or is about to be, and is over once that was given up. Of a connection that
// has just been made, an end that both sides agree on is nothing that net would notice.
func abandon(raw syscall.RawConn) {
	for raw.Control(func(fd uintptr) {
		nowait.Disconnect(int(fd))
		unix.Shutdown(int(fd), unix.SHUT_RDWR) // the same, for gVisor (net/ipv4/af_inet.c, inet_shutdown)
	}) == nil {
		time.Sleep(time.Millisecond)
	}
}

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST
// (linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h).
const soOriginalDst = 80

// OriginalDestination asks the kernel's connection tracking where conn was going to before it was redirected. A
// connection that was not redirected has the listener's own address, or is an error if nothing tracked it.
func OriginalDestination(conn *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return to, err
	}
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	failed := raw.Control(func(fd uintptr) { to, err = originalDestination(int(fd), local) })
	return to, cmp.Or(failed, err)
}

func originalDestination(fd int, local netip.AddrPort) (to netip.AddrPort, err error) {
	level := unix.SOL_IPV6
	if local.Addr().Unmap().Is4() {
		level = unix.SOL_IP
	}
	var b [unix.SizeofSockaddrInet6]byte
	address, errno := nowait.Get(fd, level, soOriginalDst, b[:])
	switch {
	case errno != 0:
		return to, os.NewSyscallError("getsockopt", errno)
	case level == unix.SOL_IP && len(address) >= unix.SizeofSockaddrInet4: // struct sockaddr_in
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), binary.BigEndian.Uint16(b[2:])), nil
	case level == unix.SOL_IPV6 && len(address) >= unix.SizeofSockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:])), binary.BigEndian.Uint16(b[2:])), nil
	}
	return to, fmt.Errorf("getsockopt: %d bytes are no address", len(address))
}
