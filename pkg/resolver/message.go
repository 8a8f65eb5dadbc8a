package resolver

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// The client's side of the protocol (RFC 1035, section 4) is written by hand, which keeps
// the path of a cached answer free of allocation.

const (
	headerLen   = 12
	maxNameLen  = 255
	maxUDPReply = 1232 // DNS flag day 2020: fits everywhere unfragmented

	flagQR     = 1 << 15
	flagTC     = 1 << 9
	flagRD     = 1 << 8
	flagRA     = 1 << 7
	flagCD     = 1 << 4
	maskOpcode = 0xf << 11
)

// query is what a client's message comes down to. Its slices point into the message and into the reader's scratch.
type query struct {
	id       uint16
	flags    uint16
	question []byte // as sent, since clients compare the case too; nil if not understood
	name     []byte // lower case, without the last dot; bytes that no host name has are escaped
	qtype    uint16
	clean    bool // name has letters, digits, hyphens and underscores only
	edns     bool
	size     int // bytes of UDP that the client takes
}

// parseQuery reads pkt into q, using buf for the name. It returns false if no reply may be sent at all, else the code
// to fail with, dns.RcodeSuccess if the question is one that can be answered.
func parseQuery(pkt, buf []byte, q *query) (rcode uint16, reply bool) {
	*q = query{name: buf[:0], size: dns.MinMsgSize, clean: true}
	if len(pkt) < headerLen {
		return 0, false
	}
	be := binary.BigEndian
	q.id, q.flags = be.Uint16(pkt), be.Uint16(pkt[2:])
	if q.flags&flagQR != 0 {
		return 0, false // two servers must not talk to each other for ever
	}
	if q.flags&maskOpcode != 0 {
		return dns.RcodeNotImplemented, true
	}
	// A query has one question and no answers; an update or a second question
	// would be something that the policy has not looked at.
	if be.Uint16(pkt[4:]) != 1 || be.Uint16(pkt[6:]) != 0 || be.Uint16(pkt[8:]) != 0 {
		return dns.RcodeFormatError, true
	}
	off, ok := q.parseName(pkt, headerLen)
	if !ok || off+4 > len(pkt) {
		return dns.RcodeFormatError, true
	}
	q.qtype = be.Uint16(pkt[off:])
	q.question = pkt[headerLen : off+4]
	class := be.Uint16(pkt[off+2:])
	version, ok := q.parseAdditional(pkt, off+4, int(be.Uint16(pkt[10:])))
	switch {
	case !ok:
		return dns.RcodeFormatError, true
	case version != 0:
		return dns.RcodeBadVers, true
	case class != dns.ClassINET:
		return dns.RcodeRefused, true
	}
	return dns.RcodeSuccess, true
}

// parseName reads an uncompressed name at off and returns where it ends.
func (q *query) parseName(pkt []byte, off int) (int, bool) {
	start := off
	for {
		if off >= len(pkt) {
			return 0, false
		}
		n := int(pkt[off])
		off++
		if n == 0 {
			return off, off-start <= maxNameLen
		}
		if n > 63 || off+n > len(pkt) || off+n-start >= maxNameLen {
			return 0, false
		}
		if len(q.name) > 0 {
			q.name = append(q.name, '.')
		}
		for _, c := range pkt[off : off+n] {
			switch {
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
				q.name = append(q.name, c)
			case c >= 'A' && c <= 'Z':
				q.name = append(q.name, c+('a'-'A'))
			default:
				q.clean = false
				q.name = append(q.name, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
			}
		}
		off += n
	}
}

// parseAdditional looks for one OPT record among n records at off (RFC 6891) and returns its version.
func (q *query) parseAdditional(pkt []byte, off, n int) (version byte, ok bool) {
	if n > 8 {
		return 0, false
	}
	for range n {
		root := off < len(pkt) && pkt[off] == 0
		end, ok := skipName(pkt, off)
		if !ok || end+10 > len(pkt) {
			return 0, false
		}
		rr := pkt[end:]
		off = end + 10 + int(binary.BigEndian.Uint16(rr[8:]))
		if off > len(pkt) {
			return 0, false
		}
		if binary.BigEndian.Uint16(rr) != dns.TypeOPT {
			continue
		}
		if q.edns || !root {
			return 0, false
		}
		q.edns = true
		q.size = min(max(int(binary.BigEndian.Uint16(rr[2:])), dns.MinMsgSize), maxUDPReply)
		version = rr[5]
	}
	return version, true
}

// skipName returns the offset behind the name at off, compressed or not.
func skipName(pkt []byte, off int) (int, bool) {
	for off < len(pkt) {
		n := int(pkt[off])
		switch {
		case n == 0:
			return off + 1, true
		case n >= 0xc0:
			return off + 2, off+2 <= len(pkt)
		case n > 63:
			return 0, false
		}
		off += 1 + n
	}
	return 0, false
}

// answer is what a question comes to, the same for all who ask it. It does not change once it is made.
type answer struct {
	addrs []netip.Addr // all of the question's family
	text  string
	ede   uint16 // info code of RFC 8914, if text is set
	rcode uint16
	ttl   uint32 // seconds; of the addresses, or of the negative answer
}

// soaData is the SOA record behind negative answers: resolvers in between keep
// those for its last number at most (RFC 2308, section 5).
const soaData = "\x0aagent-init\x07invalid\x00" + "\x06nobody\x07invalid\x00" + // MNAME, RNAME
	"\x00\x00\x00\x01" + "\x00\x00\x0e\x10" + // SERIAL, REFRESH
	"\x00\x00\x02\x58" + "\x00\x01\x51\x80" + // RETRY, EXPIRE
	"\x00\x00\x00\x05" // MINIMUM

// appendReply appends the reply to q, of at most limit bytes, to b. The addresses start with the one numbered turn, so
// that clients that take the first spread over all.
func appendReply(b []byte, q *query, a *answer, ttl uint32, turn, limit int) []byte {
	be := binary.BigEndian
	start := len(b)
	flags := flagQR | q.flags&(maskOpcode|flagRD|flagCD) | flagRA | a.rcode&0xf
	b = be.AppendUint16(b, q.id)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // flags and counts, below
	count := func(at int, n uint16) { be.PutUint16(b[start+at:], n) }
	if q.question != nil {
		b = append(b, q.question...)
		count(4, 1)
	}
	room := limit
	text := a.text
	if q.edns {
		room -= 11
		if text != "" {
			if len(b)-start+6+len(text) > room {
				text = ""
			} else {
				room -= 6 + len(text)
			}
		}
	}
	packed := 0
	for i := range a.addrs {
		addr := a.addrs[(turn+i)%len(a.addrs)]
		if len(b)-start+12+addr.BitLen()/8 > room {
			flags |= flagTC
			break
		}
		b = appendAddr(b, addr, ttl)
		packed++
	}
	count(6, uint16(packed))
	negative := a.rcode == dns.RcodeNameError || a.rcode == dns.RcodeSuccess && len(a.addrs) == 0
	if soa := 11 + len(soaData); negative && len(b)-start+soa <= room {
		b = append(b, 0, 0, byte(dns.TypeSOA), 0, dns.ClassINET) // owned by the root, whose child is every name
		b = be.AppendUint32(b, ttl)
		b = be.AppendUint16(b, uint16(len(soaData)))
		b = append(b, soaData...)
		be.PutUint32(b[len(b)-4:], ttl)
		count(8, 1)
	}
	if q.edns {
		b = append(b, 0, 0, byte(dns.TypeOPT))
		b = be.AppendUint16(b, maxUDPReply)
		b = append(b, byte(a.rcode>>4), 0, 0, 0)
		if text == "" {
			b = append(b, 0, 0)
		} else {
			b = be.AppendUint16(b, uint16(6+len(text)))
			b = be.AppendUint16(b, dns.EDNS0EDE)
			b = be.AppendUint16(b, uint16(2+len(text)))
			b = be.AppendUint16(b, a.ede)
			b = append(b, text...)
		}
		count(10, 1)
	}
	count(2, flags)
	return b
}

// appendAddr appends an address record that is owned by the question's name.
func appendAddr(b []byte, a netip.Addr, ttl uint32) []byte {
	kind, size := dns.TypeAAAA, a.BitLen()/8
	if a.Is4() {
		kind = dns.TypeA
	}
	b = append(b, 0xc0, headerLen, 0, byte(kind), 0, dns.ClassINET)
	b = binary.BigEndian.AppendUint32(b, ttl)
	v := a.As16() // ends with an IPv4 address
	return append(append(b, 0, byte(size)), v[16-size:]...)
}
