package gateway

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// craft is an Ethernet frame in the making: what a hostile root sends past its own kernel.
type craft struct {
	from, to net.HardwareAddr
	src, dst netip.Addr
	proto    uint8
	body     []byte // behind the IP header
	options  []byte // of IPv4, in words of four bytes
	headers  []byte // of IPv6 before body, the first of which has the number next
	next     uint8
	offset   uint16 // of a fragment of IPv4: flags and offset
	ttl      uint8
}

func sum16(parts ...[]byte) uint16 {
	var s uint32
	for i, b := range slices.Concat(parts...) {
		s += uint32(b) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// sealed is body with the checksum at an offset that goes with the addresses.
func (f craft) summed(at int) craft {
	f.body = slices.Clone(f.body)
	pseudo := append(f.src.AsSlice(), f.dst.AsSlice()...)
	pseudo = append(pseudo, 0, f.proto)
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(f.body)))
	if f.proto == unix.IPPROTO_ICMP {
		pseudo = nil
	}
	binary.BigEndian.PutUint16(f.body[at:], sum16(pseudo, f.body))
	return f
}

func (f craft) udp(sport, dport uint16, text string) craft {
	f.proto = unix.IPPROTO_UDP
	f.body = binary.BigEndian.AppendUint16(nil, sport)
	f.body = binary.BigEndian.AppendUint16(f.body, dport)
	f.body = binary.BigEndian.AppendUint16(f.body, uint16(8+len(text)))
	f.body = append(append(f.body, 0, 0), text...)
	return f.summed(6)
}

func (f craft) tcp(sport, dport uint16, flags byte, text string) craft {
	f.proto = unix.IPPROTO_TCP
	f.body = binary.BigEndian.AppendUint16(nil, sport)
	f.body = binary.BigEndian.AppendUint16(f.body, dport)
	f.body = append(f.body, 0, 0, 1, 0, 0, 0, 1, 0, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	f.body = append(f.body, text...)
	return f.summed(16)
}

// icmp is of the family that the addresses are of; rest begins behind the checksum.
func (f craft) icmp(typ, code byte, rest ...byte) craft {
	if f.proto = unix.IPPROTO_ICMP; f.src.Is6() {
		f.proto = unix.IPPROTO_ICMPV6
	}
	f.body = append([]byte{typ, code, 0, 0}, rest...)
	return f.summed(2)
}

func (f craft) withTTL(ttl uint8) craft { f.ttl = ttl; return f }

// behindHeader puts an extension header of IPv6 before the body: data begins behind the number of what follows.
func (f craft) behindHeader(number uint8, data ...byte) craft {
	f.headers = append(append([]byte{f.proto}, data...), f.headers...)
	f.next = number
	return f
}

// packet is the frame without what is before the IP header.
func (f craft) packet() []byte {
	ttl := f.ttl
	if ttl == 0 {
		ttl = 64
	}
	if f.src.Is4() {
		b := []byte{byte(0x45 + len(f.options)/4), 0, 0, 0, 0x12, 0x34, 0, 0, ttl, f.proto, 0, 0}
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(f.options)+len(f.body)))
		binary.BigEndian.PutUint16(b[6:], f.offset)
		b = slices.Concat(b, f.src.AsSlice(), f.dst.AsSlice(), f.options)
		binary.BigEndian.PutUint16(b[10:], sum16(b))
		return append(b, f.body...)
	}
	next := f.proto
	if f.headers != nil {
		next = f.next
	}
	b := []byte{0x60, 0, 0, 0, 0, 0, next, ttl}
	binary.BigEndian.PutUint16(b[4:], uint16(len(f.headers)+len(f.body)))
	return slices.Concat(b, f.src.AsSlice(), f.dst.AsSlice(), f.headers, f.body)
}

// hex is the frame as poke takes it, with what is put before its ethertype.
func (f craft) hex(tags ...byte) string {
	typ := []byte{0x08, 0x00}
	if f.src.Is6() {
		typ = []byte{0x86, 0xdd}
	}
	return hex.EncodeToString(slices.Concat(f.to, f.from, tags, typ, f.packet()))
}

// fragments cuts a packet of IPv4 into pieces of that many bytes, a multiple of 8.
func (f craft) fragments(size int) (out []string) {
	for at := 0; at < len(f.body); at += size {
		piece := f
		end := min(at+size, len(f.body))
		piece.body, piece.offset = f.body[at:end], uint16(at/8)
		if end < len(f.body) {
			piece.offset |= 0x2000
		}
		out = append(out, piece.hex())
	}
	return out
}

// fragments6 likewise, of IPv6.
func (f craft) fragments6(size int) (out []string) {
	for at := 0; at < len(f.body); at += size {
		piece := f
		end := min(at+size, len(f.body))
		piece.body = f.body[at:end]
		more := byte(0)
		if end < len(f.body) {
			more = 1
		}
		out = append(out, piece.behindHeader(unix.IPPROTO_FRAGMENT, 0, byte(at>>8), byte(at)|more, 0, 0, 0x77, byte(size)).hex())
	}
	return out
}

// arp is an ARP packet: as a reply, it says unasked that an address is at a station.
func arp(op byte, from, to net.HardwareAddr, who netip.Addr, at net.HardwareAddr, target netip.Addr) string {
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	return hex.EncodeToString(slices.Concat(broadcast, from, []byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, op}, at, who.AsSlice(), to, target.AsSlice()))
}
