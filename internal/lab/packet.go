package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Packet is one frame that left a box.
type Packet struct {
	Time             time.Time
	EtherType        uint16
	Src, Dst         netip.Addr // zero unless IP
	Proto            uint8      // IP protocol, after IPv6 extension headers
	SrcPort, DstPort uint16     // of TCP, UDP, UDP-Lite, SCTP and DCCP
	TCPFlags         uint8
	ICMPType         uint8
	Fragment         bool   // one of several, or with a fragment header
	Payload          []byte // behind the transport header as far as it is known; cut at 2 KiB
	Raw              []byte // the frame from its Ethernet header on, cut likewise
}

// String is one line for messages of tests.
func (p Packet) String() string {
	if !p.Src.IsValid() {
		return fmt.Sprintf("ethertype %#04x, %d bytes", p.EtherType, len(p.Raw))
	}
	return fmt.Sprintf("%s > %s proto %d flags %#x icmp %d, %d bytes", netip.AddrPortFrom(p.Src, p.SrcPort),
		netip.AddrPortFrom(p.Dst, p.DstPort), p.Proto, p.TCPFlags, p.ICMPType, len(p.Payload))
}

// Filter selects packets.
type Filter func(*Packet) bool

// Routed selects IP packets except those by which a host keeps house on its
// link: neighbour and router discovery, multicast listener reports. It is what
// "nothing left the box" is about.
func Routed(p *Packet) bool {
	if !p.Src.IsValid() {
		return false
	}
	if p.Proto == unix.IPPROTO_ICMPV6 {
		switch p.ICMPType {
		case 133, 134, 135, 136, 137, 130, 131, 132, 143:
			return false
		}
	}
	return !(p.Proto == unix.IPPROTO_IGMP)
}

// ToAddr selects packets to an address or prefix. It panics on a malformed one.
func ToAddr(addr string) Filter {
	prefix, err := netip.ParsePrefix(addr)
	if err != nil {
		a := netip.MustParseAddr(addr)
		prefix = netip.PrefixFrom(a, a.BitLen())
	}
	return func(p *Packet) bool { return p.Dst.IsValid() && prefix.Contains(p.Dst) }
}

// ToPort selects packets of a protocol (unix.IPPROTO_TCP, …) to a port.
func ToPort(proto uint8, port uint16) Filter {
	return func(p *Packet) bool { return p.Proto == proto && p.DstPort == port }
}

// Proto selects packets of an IP protocol.
func Proto(proto uint8) Filter {
	return func(p *Packet) bool { return p.Src.IsValid() && p.Proto == proto }
}

// Not inverts a filter.
func Not(f Filter) Filter { return func(p *Packet) bool { return !f(p) } }

// Any selects what one of the filters selects.
func Any(filters ...Filter) Filter {
	return func(p *Packet) bool {
		for _, f := range filters {
			if f(p) {
				return true
			}
		}
		return false
	}
}

const ethHeader = 14

// parsePacket never fails: what can't be parsed stays zero.
func parsePacket(frame []byte, at time.Time) Packet {
	p := Packet{Time: at, Raw: frame}
	if len(frame) < ethHeader {
		return p
	}
	p.EtherType = binary.BigEndian.Uint16(frame[12:])
	b := frame[ethHeader:]
	switch p.EtherType {
	case unix.ETH_P_IP:
		p.parse4(b)
	case unix.ETH_P_IPV6:
		p.parse6(b)
	}
	return p
}

func (p *Packet) parse4(b []byte) {
	if len(b) < 20 {
		return
	}
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.Proto = b[9]
	frag := binary.BigEndian.Uint16(b[6:])
	p.Fragment = frag&0x3fff != 0 // more fragments, or an offset
	if n := int(b[0]&15) * 4; n >= 20 && n <= len(b) {
		p.parseTransport(b[n:], frag&0x1fff == 0)
	}
}

func (p *Packet) parse6(b []byte) {
	if len(b) < 40 {
		return
	}
	p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next, first := b[6], true
	b = b[40:]
	for {
		p.Proto = next
		size := 0
		switch next {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			if len(b) >= 2 {
				size = int(b[1])*8 + 8
			}
		case unix.IPPROTO_FRAGMENT:
			size = 8
			if len(b) >= 4 {
				p.Fragment, first = true, binary.BigEndian.Uint16(b[2:])&0xfff8 == 0
			}
		}
		if size == 0 || size > len(b) {
			break
		}
		next, b = b[0], b[size:]
	}
	p.parseTransport(b, first)
}

func (p *Packet) parseTransport(b []byte, first bool) {
	p.Payload = b
	if !first {
		return
	}
	header := 0
	switch p.Proto {
	case unix.IPPROTO_TCP:
		if len(b) < 20 {
			return
		}
		p.TCPFlags, header = b[13], int(b[12]>>4)*4
	case unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE:
		header = 8
	case unix.IPPROTO_SCTP, unix.IPPROTO_DCCP:
		header = 12
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if len(b) >= 8 {
			p.ICMPType, p.Payload = b[0], b[8:]
		}
		return
	default:
		return
	}
	if len(b) >= 4 {
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	if header <= len(b) {
		p.Payload = b[header:]
	}
}
