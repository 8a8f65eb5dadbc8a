package resolver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/miekg/dns"
)

const (
	headerLen     = 12
	maxAdditional = 8    // records of a query
	maxUDPReply   = 1232 // DNS flag day 2020: fits everywhere unfragmented
)

// query is what a client's message comes down to.
type query struct {
	question         // the bytes of its name that no host name has are escaped
	msg      dns.Msg // as it came, without a question if that was not understood
	clean    bool    // the name has letters, digits, hyphens and underscores only
	edns     bool
	size     int // bytes of UDP that the client takes
}

// parseQuery returns false if no reply may be sent at all, else the code to fail with, dns.RcodeSuccess if the question
// is one that can be answered.
func parseQuery(pkt []byte) (q *query, rcode int, reply bool) {
	q = &query{size: dns.MinMsgSize}
	m := &q.msg
	if len(pkt) < headerLen || m.Unpack(pkt[:headerLen]) != nil || m.Response {
		return q, 0, false // two servers must not talk to each other for ever
	}
	switch {
	case m.Opcode != dns.OpcodeQuery:
		return q, dns.RcodeNotImplemented, true
	case !asksOnce(pkt) || m.Unpack(pkt) != nil || !q.whole(pkt):
		m.Question = nil
		return q, dns.RcodeFormatError, true
	}
	asked := m.Question[0]
	q.name, q.qtype = strings.TrimSuffix(dns.CanonicalName(asked.Name), "."), asked.Qtype
	if q.clean = !strings.ContainsFunc(q.name, odd); !q.clean {
		q.name = oddBytes.ReplaceAllStringFunc(q.name, func(s string) string { return fmt.Sprintf(`\%03d`, s[len(s)-1]) })
	}
	if opt := m.IsEdns0(); opt != nil {
		q.edns = true
		q.size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDPReply)
		if opt.Version() != 0 {
			return q, dns.RcodeBadVers, true
		}
	}
	if asked.Qclass != dns.ClassINET {
		return q, dns.RcodeRefused, true
	}
	return q, dns.RcodeSuccess, true
}

// asksOnce says whether the header counts one question, no answer and few additional records: an update or a second
// question would be something that the policy has not looked at. Unpack corrects counts, so it does not tell.
func asksOnce(pkt []byte) bool {
	counts := binary.BigEndian.Uint64(pkt[4:])
	return counts>>16 == 1<<32 && counts&0xffff <= maxAdditional
}

// whole says whether pkt has all that it counts, its name without pointers, and one OPT record at most. Unpack leaves out
// what is not there, and takes a question that ends early for one of type or class 0.
func (q *query) whole(pkt []byte) bool {
	if len(q.msg.Question) != 1 || len(q.msg.Extra) != int(binary.BigEndian.Uint16(pkt[10:])) {
		return false
	}
	opts := 0
	for _, rr := range q.msg.Extra {
		if h := rr.Header(); h.Rrtype == dns.TypeOPT {
			if opts++; opts > 1 || h.Name != "." {
				return false
			}
		}
	}
	var plain [255]byte // the longest name
	n, err := dns.PackDomainName(q.msg.Question[0].Name, plain[:], 0, nil, false)
	return err == nil && headerLen+n+4 <= len(pkt) && bytes.Equal(plain[:n], pkt[headerLen:headerLen+n])
}

// odd is for what no host name has.
func odd(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
}

// oddBytes are those that dns.Msg has not escaped as \DDD. In that form they mean nothing to a shell or a terminal, which
// the name may get to.
var oddBytes = regexp.MustCompile(`\\\D|[^a-z0-9_.\\-]`)

// answer is what a question comes to, the same for all who ask it. It does not change once it is made.
type answer struct {
	addrs []netip.Addr // all of the question's family
	text  string
	ede   uint16 // info code of RFC 8914, if text is set
	rcode int
	ttl   uint32 // seconds; of the addresses, or of the negative answer
}

// reply packs the reply to q, of at most limit bytes, into b if that has the room. The addresses start with the one
// numbered turn, so that clients that take the first spread over all.
func (q *query) reply(a *answer, ttl uint32, turn, limit int, b []byte) []byte {
	m := new(dns.Msg).SetReply(&q.msg)
	m.RecursionAvailable, m.Rcode = true, a.rcode
	if q.edns {
		m.SetEdns0(maxUDPReply, false)
		if opt := m.IsEdns0(); a.text != "" {
			opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: a.ede, ExtraText: a.text}}
			if m.Len() > limit {
				opt.Option = nil
			}
		}
	}
	for i := range a.addrs {
		m.Answer = append(m.Answer, address(m.Question[0].Name, a.addrs[(turn+i)%len(a.addrs)], ttl))
	}
	if a.rcode == dns.RcodeNameError || a.rcode == dns.RcodeSuccess && len(a.addrs) == 0 {
		// Resolvers in between keep a negative answer for Minttl at most (RFC 2308, section 5).
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl}, // every name is below the root
			Ns:  "agent-init.invalid.", Mbox: "nobody.invalid.", Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: ttl,
		}}
	}
	m.Truncate(limit)
	b, _ = m.PackBuffer(b) // without a reply, should it fail
	return b
}

// address is an address record.
func address(owner string, a netip.Addr, ttl uint32) dns.RR {
	h := dns.RR_Header{Name: owner, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: ttl}
	if a.Is4() {
		h.Rrtype = dns.TypeA
		return &dns.A{Hdr: h, A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}
}
