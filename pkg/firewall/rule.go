package firewall

import (
	"fmt"
	"net/netip"
	"strings"
)

// IP protocol numbers, from the IANA registry.
const (
	protoICMP   = 1
	protoIGMP   = 2
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

func protoName(p uint8) string {
	switch p {
	case protoICMP:
		return "icmp"
	case protoIGMP:
		return "igmp"
	case protoTCP:
		return "tcp"
	case protoUDP:
		return "udp"
	case protoICMPv6:
		return "ipv6-icmp"
	}
	return fmt.Sprint(p)
}

// family tells IPv4 from IPv6.
type family uint8

const (
	ipv4 family = 4
	ipv6 family = 6
)

func families() []family { return []family{ipv4, ipv6} }

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// header is the word that nft(8) uses for fields of the family's header.
func (f family) header() string {
	if f == ipv4 {
		return "ip"
	}
	return "ip6"
}

// rule is what happens to the packets that every one of its matches fits.
type rule struct {
	matches []match
	verdict verdict
}

func (r rule) String() string {
	var words []string
	for _, m := range r.matches {
		words = append(words, m.String())
	}
	return strings.Join(append(words, r.verdict.String()), " ")
}

// match is a condition on a packet: one of the types below. A backend
// translates each by a type switch.
type match interface{ String() string }

type (
	matchFamily struct{ family family }
	matchIn     struct{}                 // came in by loopback
	matchOut    struct{ not bool }       // goes out by loopback
	matchDst    struct{ p netip.Prefix } // destination, after any NAT
	matchSrc    struct{ a netip.Addr }   // source, before any NAT
	matchProto  struct {
		proto uint8
		not   bool
	}
	matchPort     struct{ port uint16 } // destination port; after matchProto
	matchICMP     struct{ typ uint8 }   // after matchProto
	matchHopLimit struct{}              // 255: no router has passed it on
	matchUID      struct {
		uid uint32 // owner of the sending socket
		not bool   // sent by a process, and by another one's
	}
	matchGID struct {
		gid uint32 // the owner's group, likewise
		not bool
	}
	matchOwned    struct{}              // sent by a process, not by the kernel
	matchForeign  struct{}              // from an address that is none of this namespace
	matchSYN      struct{}              // the first segment of a connection; after matchProto
	matchOpening  struct{}              // a segment that may open a connection: SYN without ACK; after matchProto
	matchReset    struct{ not bool }    // a segment that ends a connection at once; after matchProto
	matchSrcPort  struct{ port uint16 } // source port; after matchProto
	matchRouted   struct{}              // IPv6, with a routing header
	matchState    struct{ state ctState }
	matchOriginal struct{}                    // in the direction of the flow's first packet
	matchReply    struct{}                    // in the other direction
	matchAnswer   struct{ to netip.AddrPort } // in the other one, of a flow whose first packet went there, before any NAT
	matchHeld     struct{}                    // sent by a process that still has the socket open; see its translations
	matchDNAT     struct{}                    // redirected by a NAT rule
	matchSet      struct {
		set  string // of addresses, protocols and ports
		from bool   // where the packet comes from, and not where it goes
	}
	matchQuery struct{ set string } // identifier of a DNS query; after matchProto
	matchCalm  struct{ set string } // destination port that set does not have; after matchProto
)

func (m matchFamily) String() string { return fmt.Sprintf("meta nfproto ipv%d", m.family) }
func (m matchIn) String() string     { return "iif lo" }
func (m matchOut) String() string {
	if m.not {
		return "oif != lo"
	}
	return "oif lo"
}
func (m matchDst) String() string {
	dst := m.p.String()
	if m.p.IsSingleIP() {
		dst = m.p.Addr().String()
	}
	return familyOf(m.p.Addr()).header() + " daddr " + dst
}
func (m matchSrc) String() string {
	return familyOf(m.a).header() + " saddr " + m.a.String()
}
func (m matchProto) String() string {
	if m.not {
		return "meta l4proto != " + protoName(m.proto)
	}
	return "meta l4proto " + protoName(m.proto)
}
func (m matchPort) String() string     { return fmt.Sprintf("th dport %d", m.port) }
func (m matchICMP) String() string     { return fmt.Sprintf("icmp type %d", m.typ) }
func (m matchHopLimit) String() string { return "ip6 hoplimit 255" }
func (m matchUID) String() string {
	if m.not {
		return fmt.Sprintf("meta skuid != %d", m.uid)
	}
	return fmt.Sprintf("meta skuid %d", m.uid)
}
func (m matchGID) String() string {
	if m.not {
		return fmt.Sprintf("meta skgid != %d", m.gid)
	}
	return fmt.Sprintf("meta skgid %d", m.gid)
}
func (m matchOwned) String() string   { return "meta skuid >= 0" }
func (m matchForeign) String() string { return "fib saddr type != local" }
func (m matchSYN) String() string     { return "tcp flags & (fin|syn|rst|ack) == syn" }
func (m matchOpening) String() string { return "tcp flags & (syn|ack) == syn" }
func (m matchReset) String() string {
	if m.not {
		return "tcp flags & rst != rst"
	}
	return "tcp flags & rst == rst"
}
func (m matchSrcPort) String() string  { return fmt.Sprintf("th sport %d", m.port) }
func (m matchRouted) String() string   { return "exthdr rt exists" }
func (m matchState) String() string    { return "ct state " + m.state.String() }
func (m matchOriginal) String() string { return "ct direction original" }
func (m matchReply) String() string    { return "ct direction reply" }
func (m matchAnswer) String() string {
	return fmt.Sprintf("ct direction reply ct original %s daddr %s ct original proto-dst %d", familyOf(m.to.Addr()).header(), m.to.Addr(), m.to.Port())
}
func (m matchHeld) String() string  { return "meta skuid exists" }
func (m matchDNAT) String() string  { return "ct status dnat" }
func (m matchQuery) String() string { return "@th,64,16 @" + m.set }
func (m matchCalm) String() string  { return "th dport != @" + m.set }
func (m matchSet) String() string {
	if m.from {
		return "saddr . l4proto . sport @" + m.set
	}
	return "daddr . l4proto . dport @" + m.set
}

// ctState is what connection tracking thinks of a packet.
type ctState uint8

const (
	stateInvalid ctState = iota
	stateEstablished
	stateRelated
	stateNew
)

func (s ctState) String() string {
	return [...]string{"invalid", "established", "related", "new"}[s]
}

// verdict is what a rule does: one of the types below.
type verdict interface{ String() string }

type (
	accept   struct{}
	drop     struct{} // without an answer
	leave    struct{} // this chain
	jump     struct{ chain string }
	count    struct{} // and go on
	reset    struct{} // refuse by a TCP reset
	prohibit struct{} // refuse by ICMP, administratively prohibited
	noPort   struct{} // refuse by ICMP, port unreachable
	redirect struct{ port uint16 }
	remember struct{ set string } // the identifier of a DNS query; and go on
	alarm    struct{ set string } // the destination port; and go on
	zone     struct{ id uint16 }  // of the flow that the packet begins; and go on
	keep     struct{ set string } // where the packet comes from; accept it if it has room there
	log      struct {             // to NFLOG, limited per element of set and in total
		group uint16
		set   string
		ports bool // the protocol has ports
		text  string
	}
)

func (accept) String() string     { return "accept" }
func (drop) String() string       { return "drop" }
func (leave) String() string      { return "return" }
func (v jump) String() string     { return "jump " + v.chain }
func (count) String() string      { return "counter" }
func (reset) String() string      { return "reject with tcp reset" }
func (prohibit) String() string   { return "reject with icmpx admin-prohibited" }
func (noPort) String() string     { return "reject with icmpx port-unreachable" }
func (v redirect) String() string { return fmt.Sprintf("redirect to :%d", v.port) }
func (v remember) String() string { return fmt.Sprintf("update @%s { @th,64,16 }", v.set) }
func (v alarm) String() string    { return fmt.Sprintf("update @%s { th dport }", v.set) }
func (v zone) String() string     { return fmt.Sprintf("ct original zone set %d", v.id) }
func (v keep) String() string {
	return fmt.Sprintf("update @%s { saddr . l4proto . sport } accept", v.set)
}
func (v log) String() string {
	port := "0"
	if v.ports {
		port = "dport"
	}
	return fmt.Sprintf("update @%s { daddr . l4proto . %s limit rate %d/second burst %d } limit rate %d/second burst %d log group %d prefix %q snaplen %d",
		v.set, port, dropRate, dropBurst, totalRate, totalBurst, v.group, v.text, snapLen)
}

// What reaches the log: dropBurst packets to a destination at once, then
// dropRate a second, and of all destinations together totalRate a second.
const (
	dropRate   = 1
	dropBurst  = 5
	totalRate  = 200
	totalBurst = 400

	logPrefix = "agent-init"

	// InboundPrefix is Drop.Prefix of a connection from outside that was refused.
	InboundPrefix = "agent-init-in"

	// ObservedPrefix is Drop.Prefix of what was let out, see Config.Observe.
	ObservedPrefix = "agent-init-out"

	snapLen = 128 // bytes of a packet: headers, and little of what they carry
)
