package gateway

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST
// (linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h).
const soOriginalDst = 80

// originalDestination asks the kernel's connection tracking where conn was
// going to before it was redirected. A connection that was not redirected has
// the listener's own address, or is an error if nothing tracked it.
func originalDestination(conn *net.TCPConn) (netip.AddrPort, error) {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("connection has no TCP address")
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	query := original6
	if local.AddrPort().Addr().Unmap().Is4() {
		query = original4
	}
	var to netip.AddrPort
	var qerr error
	err = raw.Control(func(fd uintptr) { to, qerr = query(int(fd)) })
	return to, cmp.Or(err, qerr)
}

// original4 reads a struct sockaddr_in by way of a getsockopt that takes 20 bytes.
func original4(fd int) (netip.AddrPort, error) {
	m, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	b := m.Multiaddr // family (2), port (2), address (4)
	port := binary.BigEndian.Uint16(b[2:4])
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), nil
}

// original6 reads a struct sockaddr_in6, with which ip6_mtuinfo begins.
func original6(fd int) (netip.AddrPort, error) {
	m, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var port [2]byte // in network order, as the kernel left it
	binary.NativeEndian.PutUint16(port[:], m.Addr.Port)
	return netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), binary.BigEndian.Uint16(port[:])), nil
}
