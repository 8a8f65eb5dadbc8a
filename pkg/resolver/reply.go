package resolver

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/policy"
)

const (
	maxHops     = 8                // CNAME records followed
	maxNegative = 30 * time.Second // for what an upstream says does not exist
)

// parseReply unpacks pkt if it is the reply to req. It returns errForged if it
// is not, or can't be read, and errTruncated if the server says to ask over TCP.
func parseReply(pkt []byte, req *dns.Msg) (*dns.Msg, error) {
	m := new(dns.Msg)
	// The whole message need not be well formed if it is cut short.
	err := m.Unpack(pkt)
	canonical := func(q dns.Question) dns.Question { q.Name = dns.CanonicalName(q.Name); return q }
	switch {
	case len(pkt) < headerLen || m.Id != req.Id || !m.Response || m.Opcode != dns.OpcodeQuery:
		return nil, errForged
	case len(m.Question) == 0 && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented):
		return m, nil // it did not understand the question, and need not repeat it
	case len(m.Question) != 1 || canonical(m.Question[0]) != canonical(req.Question[0]):
		return nil, errForged
	case m.Truncated:
		return nil, errTruncated
	case err != nil:
		return nil, errForged
	}
	return m, nil
}

// found is what a reply says about the name asked for, and nothing else that is in it.
type found struct {
	exists bool // there is such a name
	addrs  []netip.Addr
	chain  []string // targets of the CNAME records followed, lower case, no last dot
	ttl    time.Duration
}

// follow walks from name along the CNAME records of m to the addresses that
// their end owns. It stops where allowed refuses a target.
func follow(m *dns.Msg, q question, allowed func(target string) bool) found {
	f := found{exists: m.Rcode != dns.RcodeNameError}
	byOwner := make(map[string][]dns.RR)
	for _, rr := range m.Answer {
		h := rr.Header()
		if h.Class == dns.ClassINET && (h.Rrtype == q.qtype || h.Rrtype == dns.TypeCNAME) {
			owner := dns.CanonicalName(h.Name)
			byOwner[owner] = append(byOwner[owner], rr)
		}
	}
	ttl := uint32(1<<31 - 1)
	owner := dns.Fqdn(q.name)
	seen := make(map[netip.Addr]bool)
	for {
		var next *dns.CNAME
		for _, rr := range byOwner[owner] {
			var a netip.Addr
			switch rr := rr.(type) {
			case *dns.A:
				a, _ = netip.AddrFromSlice(rr.A.To4())
			case *dns.AAAA:
				a, _ = netip.AddrFromSlice(rr.AAAA.To16())
			case *dns.CNAME:
				if next == nil {
					next = rr
				}
			}
			if a.IsValid() && !seen[a] {
				seen[a] = true
				f.addrs = append(f.addrs, a)
				ttl = min(ttl, signed(rr.Header().Ttl))
			}
		}
		if len(f.addrs) > 0 || next == nil || len(f.chain) == maxHops {
			break
		}
		ttl = min(ttl, signed(next.Hdr.Ttl))
		owner = dns.CanonicalName(next.Target)
		target := strings.TrimSuffix(owner, ".")
		f.chain = append(f.chain, target)
		if !allowed(target) {
			break
		}
	}
	f.ttl = time.Duration(ttl) * time.Second
	if len(f.addrs) == 0 {
		f.ttl = negativeTTL(m)
	}
	return f
}

// lease is for how long the addresses are the answer, by p.
func (f found) lease(p *policy.Policy) time.Duration {
	return max(time.Second, min(f.ttl, time.Duration(p.Settings.DNS.MaxTTL)))
}

// signed is a TTL with the top bit read as RFC 2181, section 8 has it: zero.
func signed(ttl uint32) uint32 {
	if ttl > 1<<31-1 {
		return 0
	}
	return ttl
}

// negativeTTL is how long the absence of records may be remembered (RFC 2308).
func negativeTTL(m *dns.Msg) time.Duration {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(maxNegative, time.Duration(min(signed(soa.Hdr.Ttl), signed(soa.Minttl)))*time.Second)
		}
	}
	return time.Second
}
