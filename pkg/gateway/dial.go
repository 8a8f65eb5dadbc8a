package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// keepAlive finds peers that are gone, on both sides.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 30 * time.Second, Count: 4}

// dial is plain TCP: MPTCP would add subflows to addresses that nobody judged.
func dial(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
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
	level := unix.SOL_IPV6
	if unmap(conn.LocalAddr().(*net.TCPAddr).AddrPort()).Addr().Is4() {
		level = unix.SOL_IP
	}
	failed := raw.Control(func(fd uintptr) {
		// What this reads begins with a struct sockaddr_in6. There is room for a sockaddr_in.
		var m *unix.IPv6MTUInfo
		if m, err = unix.GetsockoptIPv6MTUInfo(int(fd), level, soOriginalDst); err != nil {
			return
		}
		ip := netip.AddrFrom16(m.Addr.Addr)
		if level == unix.SOL_IP {
			ip = netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, m.Addr.Flowinfo)))
		}
		to = netip.AddrPortFrom(ip, binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, m.Addr.Port)))
	})
	return to, cmp.Or(failed, err)
}
