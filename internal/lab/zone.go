package lab

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// DefaultTTL is the time to live, in seconds, of answers that don't say.
const DefaultTTL = 60

// Answer says how the DNS servers answer for a name. The fields combine; the
// zero value is a name that exists and has no records.
type Answer struct {
	Addrs   []netip.Addr  // A and AAAA records; any address is allowed; some 4,000 fit over TCP
	Rotate  int           // give only so many per family, others each time
	TTL     uint32        // seconds; 0: DefaultTTL, and see ZeroTTL
	ZeroTTL bool          // TTL 0 for real
	CNAME   string        // the name is an alias; what the lab knows of the target follows it
	Records []dns.RR      // further records, given for queries of their type (TXT, HTTPS, …)
	Extra   []dns.RR      // appended to every answer section, related or not
	Rcode   int           // dns.RcodeServerFailure, …: the whole answer
	Silent  bool          // no answer at all
	Latency time.Duration // besides the lab's

	// Func replaces all of the above but Latency; nil answers nothing.
	Func func(Query) *dns.Msg
	// Raw replaces even that: the bytes of the reply, well-formed or not.
	Raw func(Query) []byte
}

type name struct {
	answer Answer
	asked  map[uint16]int // by type, for Rotate
}

// Set says how a name is answered from now on. "*.zone" is every name below
// zone at any depth that has no answer of its own, "*" every name. Other names
// get NXDOMAIN.
func (d *DNS) Set(host string, a Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[dns.CanonicalName(host)] = &name{answer: a, asked: make(map[uint16]int)}
}

// SetAddrs is Set with addresses only. It panics on a malformed one.
func (d *DNS) SetAddrs(host string, addrs ...string) {
	var a Answer
	for _, s := range addrs {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(s))
	}
	d.Set(host, a)
}

// Unset makes a name answer NXDOMAIN again.
func (d *DNS) Unset(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, dns.CanonicalName(host))
}

// find returns the entry of a name or of the closest wildcard. d.mu is held.
func (d *DNS) find(host string) *name {
	host = dns.CanonicalName(host)
	if n, ok := d.names[host]; ok {
		return n
	}
	for {
		_, parent, ok := strings.Cut(host, ".")
		if !ok || parent == "" {
			return d.names["*."]
		}
		host = parent
		if n, ok := d.names["*."+host]; ok {
			return n
		}
	}
}

// answer makes the bytes of the reply, after the latency; nil is none.
func (d *DNS) answer(q Query) []byte {
	d.mu.Lock()
	n, latency := d.find(q.Name), d.latency
	var a Answer
	if n != nil {
		a = n.answer
	}
	d.mu.Unlock()
	if wait := latency + a.Latency; wait > 0 {
		time.Sleep(wait)
	}
	if a.Raw != nil {
		return a.Raw(q)
	}
	if q.Msg == nil || a.Silent {
		return nil
	}
	reply := new(dns.Msg)
	switch {
	case a.Func != nil:
		if reply = a.Func(q); reply == nil {
			return nil
		}
	case len(q.Msg.Question) != 1:
		reply.SetRcode(q.Msg, dns.RcodeFormatError)
	case n == nil:
		reply.SetRcode(q.Msg, dns.RcodeNameError)
	default:
		reply.SetRcode(q.Msg, a.Rcode)
		if a.Rcode == dns.RcodeSuccess {
			reply.Answer = append(d.records(q.Msg.Question[0].Name, q.Type, 0), a.Extra...)
		}
	}
	reply.RecursionAvailable = true
	size := dns.MinMsgSize
	if opt := q.Msg.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
		reply.SetEdns0(1232, false)
	}
	if q.Network == "tcp" {
		size = dns.MaxMsgSize
	}
	reply.Truncate(size) // and compresses if need be
	raw, err := reply.Pack()
	if err != nil {
		fail := new(dns.Msg).SetRcode(q.Msg, dns.RcodeServerFailure)
		raw, _ = fail.Pack()
	}
	return raw
}

const maxChain = 32 // aliases; a loop ends there

// records follows aliases and returns what a recursive server would.
func (d *DNS) records(host string, qtype uint16, depth int) []dns.RR {
	d.mu.Lock()
	n := d.find(host)
	if n == nil {
		d.mu.Unlock()
		return nil
	}
	a, turn := n.answer, n.asked[qtype]
	n.asked[qtype]++
	d.mu.Unlock()
	ttl := a.TTL
	if ttl == 0 && !a.ZeroTTL {
		ttl = DefaultTTL
	}
	header := func(t uint16) dns.RR_Header {
		return dns.RR_Header{Name: host, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
	}
	var rrs []dns.RR
	if a.CNAME != "" {
		rrs = append(rrs, &dns.CNAME{Hdr: header(dns.TypeCNAME), Target: dns.Fqdn(a.CNAME)})
		if qtype != dns.TypeCNAME && depth < maxChain {
			rrs = append(rrs, d.records(dns.Fqdn(a.CNAME), qtype, depth+1)...)
		}
		return rrs
	}
	for _, rr := range a.Records {
		if rr.Header().Rrtype == qtype || qtype == dns.TypeANY {
			rrs = append(rrs, dns.Copy(rr))
		}
	}
	var addrs []dns.RR
	for _, ip := range a.Addrs {
		switch {
		case ip.Is4() && qtype == dns.TypeA:
			addrs = append(addrs, &dns.A{Hdr: header(dns.TypeA), A: ip.AsSlice()})
		case ip.Is6() && qtype == dns.TypeAAAA: // 4in6 included: that is what was asked for
			b := ip.As16()
			addrs = append(addrs, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: b[:]})
		}
	}
	if a.Rotate > 0 && len(addrs) > 0 {
		var some []dns.RR
		for i := range min(a.Rotate, len(addrs)) {
			some = append(some, addrs[(turn*a.Rotate+i)%len(addrs)])
		}
		addrs = some
	}
	return append(rrs, addrs...)
}

// ECH returns an HTTPS record of host that carries an (undecipherable)
// Encrypted ClientHello configuration and address hints, for Answer.Records.
func ECH(host string, hints ...netip.Addr) dns.RR {
	rr := &dns.HTTPS{SVCB: dns.SVCB{Priority: 1, Target: ".",
		Hdr: dns.RR_Header{Name: dns.Fqdn(host), Rrtype: dns.TypeHTTPS, Class: dns.ClassINET, Ttl: DefaultTTL}}}
	v4, v6 := new(dns.SVCBIPv4Hint), new(dns.SVCBIPv6Hint)
	for _, a := range hints {
		if a.Is4() {
			v4.Hint = append(v4.Hint, a.AsSlice())
		} else {
			v6.Hint = append(v6.Hint, a.AsSlice())
		}
	}
	rr.Value = []dns.SVCBKeyValue{&dns.SVCBAlpn{Alpn: []string{"h2"}}, &dns.SVCBECHConfig{ECH: []byte("\x00\x04\xfe\x0d\x00\x00")}}
	if len(v4.Hint) > 0 {
		rr.Value = append(rr.Value, v4)
	}
	if len(v6.Hint) > 0 {
		rr.Value = append(rr.Value, v6)
	}
	return rr
}
