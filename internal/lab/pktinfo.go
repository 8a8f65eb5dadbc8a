package lab

import (
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// wantDestination makes datagrams tell to which address they were sent.
func wantDestination(u *net.UDPConn, v6 bool) error {
	if v6 {
		return ipv6.NewPacketConn(u).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	}
	return ipv4.NewPacketConn(u).SetControlMessage(ipv4.FlagDst, true)
}

// destination returns the address that a datagram was sent to, and the control
// message that makes an answer come from there.
func destination(oob []byte) (netip.Addr, []byte) {
	var v4 ipv4.ControlMessage
	if v4.Parse(oob) == nil && v4.Dst != nil {
		a, _ := netip.AddrFromSlice(v4.Dst)
		return a.Unmap(), (&ipv4.ControlMessage{Src: v4.Dst}).Marshal()
	}
	var v6 ipv6.ControlMessage
	if v6.Parse(oob) == nil && v6.Dst != nil {
		a, _ := netip.AddrFromSlice(v6.Dst)
		reply := ipv6.ControlMessage{Src: v6.Dst}
		if a.IsLinkLocalUnicast() {
			reply.IfIndex = v6.IfIndex // has no meaning without its link
		}
		return a, reply.Marshal()
	}
	return netip.Addr{}, nil
}

func addrPort(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
