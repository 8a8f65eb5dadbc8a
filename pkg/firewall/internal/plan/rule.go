package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

var protoNames = map[uint8]string{unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_IGMP: "igmp", unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp",
	unix.IPPROTO_ICMPV6: "ipv6-icmp"}

func protoName(p uint8) string { return cmp.Or(protoNames[p], fmt.Sprint(p)) }

// Family tells IPv4 from IPv6.
type Family uint8

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func Families() []Family { return []Family{IPv4, IPv6} }

func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

func (f Family) String() string { return fmt.Sprintf("ipv%d", uint8(f)) }

// Header is the word that nft(8) uses for fields of the family's header.
func (f Family) Header() string { return map[Family]string{IPv4: "ip ", IPv6: "ip6 "}[f] }

// Rule is what happens to the packets that every one of its matches fits.
type Rule struct {
	Matches []Match
	Verdict Verdict
}

func (r Rule) String() string {
	var words []string
	for _, m := range r.Matches {
		words = append(words, m.String())
	}
	return strings.Join(append(words, r.Verdict.String()), " ")
}

// Match is a condition on a packet: that a field has a value, or that a set has it.
// Each backend has a row for each field, and refuses a plan with one that it has not.
type Match struct {
	Field string // in the words of nft(8)
	Not   bool
	Value any    // a number, an address, a block, a Family or a word, as the field has it
	Set   string // instead of a value
}

// What follows a match on the protocol, as ports do, relies on it.
var (
	arriving    = is("iif", "lo")
	staying     = is("oif", "lo")
	neighbourly = is("ip6 hoplimit", uint8(255)) // no router has passed it on
	owned       = is("meta skuid", ">= 0")       // sent by a process, not by the kernel
	held        = is("meta skuid", "exists")     // by one that still has the socket open; see its translations
	foreign     = is("fib saddr type", "local").not()
	ours        = is("fib saddr type", "local")
	first       = is("tcp flags & (fin|syn|rst|ack)", "syn") // segment of a connection
	opening     = is("tcp flags & (syn|ack)", "syn")         // a segment that may open a connection
	reset       = is("tcp flags & rst", "rst")               // one that ends a connection at once
	routed      = is("exthdr rt", "exists")
	original    = is("ct direction", "original") // of the flow's first packet
	reply       = is("ct direction", "reply")
	redirected  = is("ct status", "dnat") // by a NAT rule
	established = is("ct state", "established")
	related     = is("ct state", "related")
	fresh       = is("ct state", "new")
	invalid     = is("ct state", "invalid")
	tcp         = is("meta l4proto", uint8(unix.IPPROTO_TCP))
	udp         = is("meta l4proto", uint8(unix.IPPROTO_UDP))
	icmp        = is("meta l4proto", uint8(unix.IPPROTO_ICMP))
	icmp6       = is("meta l4proto", uint8(unix.IPPROTO_ICMPV6))
	igmp        = is("meta l4proto", uint8(unix.IPPROTO_IGMP))
	plainHead   = is("ip head", uint8(0x45)) // of IPv4, and without options
)

func is(field string, value any) Match { return Match{Field: field, Value: value} }

func (m Match) not() Match {
	m.Not = true
	return m
}

func ported() []Match { return []Match{udp, tcp} }

func hasPorts(p uint8) bool { return p == unix.IPPROTO_TCP || p == unix.IPPROTO_UDP }

func iif(index uint32) Match       { return is("iif", index) } // where it has come in
func oif(index uint32) Match       { return is("oif", index) } // where it is to go out
func of(f Family) Match            { return is("meta nfproto", f) }
func proto(p uint8) Match          { return is("meta l4proto", p) }
func ofEra(n uint32) Match         { return is("ct mark", n) } // the flow began in it; 0: in none
func dport(p uint16) Match         { return is("th dport", p) }
func sport(p uint16) Match         { return is("th sport", p) }
func icmpType(t uint8) Match       { return is("icmp type", t) }
func uid(id uint32) Match          { return is("meta skuid", id) }                              // of the sending socket; negated, of another process's
func gid(id uint32) Match          { return is("meta skgid", id) }                              // likewise
func src(a netip.Addr) Match       { return is(FamilyOf(a).Header()+"saddr", single(a)) }       // before any NAT
func from(p netip.Prefix) Match    { return is(FamilyOf(p.Addr()).Header()+"saddr", p) }        // likewise, of a block
func dst(p netip.Prefix) Match     { return is(FamilyOf(p.Addr()).Header()+"daddr", p) }        // after any NAT
func asked(a netip.AddrPort) Match { return is("ct reply of", a) }                              // of a flow whose first packet went there, before any NAT
func inSet(set string) Match       { return Match{Field: "daddr . l4proto . dport", Set: set} } // where it goes
func fromSet(set string) Match     { return Match{Field: "saddr . l4proto . sport", Set: set} } // where it comes from

func (m Match) String() string {
	op, value := "", m.Value
	switch v := m.Value.(type) {
	case nil:
		value = "@" + m.Set
	case netip.Prefix:
		if v.IsSingleIP() {
			value = v.Addr()
		}
	case netip.AddrPort:
		return fmt.Sprintf("ct direction reply ct original %sdaddr %s ct original proto-dst %d", FamilyOf(v.Addr()).Header(), v.Addr(), v.Port())
	case uint8:
		if m.Field == proto(0).Field {
			value = protoName(v)
		}
	}
	switch {
	case m.Not:
		op = "!= "
	case strings.HasPrefix(m.Field, "tcp flags"):
		op = "== "
	}
	return fmt.Sprint(m.Field, " ", op, value)
}

// Verdict is what a rule does.
type Verdict struct {
	Do string         // in the words of nft(8), without what follows
	To string         // the chain to jump to, or the set to update
	N  uint16         // port, zone, or NFLOG group
	M  uint32         // mark
	At netip.AddrPort // where it is led to

	Text  string // what is logged of a packet, or updated with
	Ports bool   // it is logged by its port as well
	Total Limit  // of what is logged of all destinations together
}

var (
	accept     = Verdict{Do: "accept"}
	drop       = Verdict{Do: "drop"} // without an answer
	leave      = Verdict{Do: "return"}
	count      = Verdict{Do: "counter"} // and go on
	hangUp     = Verdict{Do: "reject with tcp reset"}
	prohibit   = Verdict{Do: "reject with icmpx admin-prohibited"}
	masquerade = Verdict{Do: "masquerade"} // as the address of the interface that it leaves by
	noPort     = Verdict{Do: "reject with icmpx port-unreachable"}
)

func jump(chain string) Verdict      { return Verdict{Do: "jump", To: chain} }
func dnat(to netip.AddrPort) Verdict { return Verdict{Do: "dnat", At: to} }
func redirect(port uint16) Verdict   { return Verdict{Do: "redirect", N: port} }
func setCtMark(m uint32) Verdict     { return Verdict{Do: "ct mark set", M: m} }           // of the packet's flow; and go on
func zone(id uint16) Verdict         { return Verdict{Do: "ct original zone set", N: id} } // of the flow that the packet begins; and go on

// update notes a part of the packet in a set, and goes on.
func update(set, part string) Verdict { return Verdict{Do: "update", To: set, Text: part} }

// keep notes where the packet comes from, and accepts it if it has room there.
func keep(set string) Verdict { return Verdict{Do: "keep", To: set} }

func (v Verdict) String() string {
	switch v.Do {
	case "jump":
		return "jump " + v.To
	case "redirect":
		return fmt.Sprintf("redirect to :%d", v.N)
	case "dnat":
		return fmt.Sprint("dnat to ", v.At)
	case "ct mark set":
		return fmt.Sprintf("%s %#x", v.Do, v.M)
	case "ct original zone set":
		return fmt.Sprint(v.Do, " ", v.N)
	case "update":
		return fmt.Sprintf("update @%s { %s }", v.To, v.Text)
	case "keep":
		return fmt.Sprintf("update @%s { saddr . l4proto . sport } accept", v.To)
	case "log":
		port := map[bool]string{false: "0", true: "dport"}[v.Ports]
		each := meter(0).Each
		return fmt.Sprintf("update @%s { daddr . l4proto . %s limit rate %d/second burst %d } limit rate %d/second burst %d log group %d prefix %q snaplen %d",
			v.To, port, each.Rate, each.Burst, v.Total.Rate, v.Total.Burst, v.N, v.Text, SnapLen)
	}
	return v.Do
}

// SnapLen is how many bytes of a packet are logged: headers, and little of what they carry.
const SnapLen = 128

// What begins the record of a packet that was not simply refused.
const (
	InboundPrefix  = TableName + "-in"  // a connection from outside was refused
	ObservedPrefix = TableName + "-out" // let out, see Config.Observe
)
