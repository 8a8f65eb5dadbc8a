package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// IP protocol numbers, from the IANA registry.
const (
	ProtoICMP   = 1
	ProtoIGMP   = 2
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58
)

// ProtoName is the name of an IP protocol, or its number.
func ProtoName(p uint8) string {
	switch p {
	case ProtoICMP:
		return "icmp"
	case ProtoIGMP:
		return "igmp"
	case ProtoTCP:
		return "tcp"
	case ProtoUDP:
		return "udp"
	case ProtoICMPv6:
		return "ipv6-icmp"
	}
	return fmt.Sprint(p)
}

// Family tells IPv4 from IPv6.
type Family uint8

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families are both.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Nfproto is the number that netfilter has for the family.
func (f Family) Nfproto() byte {
	if f == IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

// header is the word that nft(8) uses for fields of the family's header.
func (f Family) header() string {
	if f == IPv4 {
		return "ip"
	}
	return "ip6"
}

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

// Match is a condition on a packet: one of the types below. A backend
// translates each by a type switch.
type Match interface{ String() string }

type (
	MatchFamily struct{ Family Family }
	MatchIn     struct{}                 // came in by loopback
	MatchOut    struct{ Not bool }       // goes out by loopback
	MatchDst    struct{ P netip.Prefix } // destination, after any NAT
	MatchSrc    struct{ A netip.Addr }   // source, before any NAT
	MatchProto  struct {
		Proto uint8
		Not   bool
	}
	MatchPort     struct{ Port uint16 } // destination port; after MatchProto
	MatchICMP     struct{ Typ uint8 }   // after MatchProto
	MatchHopLimit struct{}              // 255: no router has passed it on
	MatchUID      struct {
		UID uint32 // owner of the sending socket
		Not bool   // sent by a process, and by another one's
	}
	MatchGID struct {
		GID uint32 // the owner's group, likewise
		Not bool
	}
	MatchOwned    struct{}              // sent by a process, not by the kernel
	MatchForeign  struct{}              // from an address that is none of this namespace
	MatchSYN      struct{}              // the first segment of a connection; after MatchProto
	MatchOpening  struct{}              // a segment that may open a connection: SYN without ACK; after MatchProto
	MatchReset    struct{ Not bool }    // a segment that ends a connection at once; after MatchProto
	MatchSrcPort  struct{ Port uint16 } // source port; after MatchProto
	MatchRouted   struct{}              // IPv6, with a routing header
	MatchState    struct{ State CtState }
	MatchOriginal struct{}                    // in the direction of the flow's first packet
	MatchReply    struct{}                    // in the other direction
	MatchAnswer   struct{ To netip.AddrPort } // in the other one, of a flow whose first packet went there, before any NAT
	MatchHeld     struct{}                    // sent by a process that still has the socket open; see its translations
	MatchDNAT     struct{}                    // redirected by a NAT rule
	MatchSet      struct {
		Set  string // of addresses, protocols and ports
		From bool   // where the packet comes from, and not where it goes
	}
	MatchQuery struct{ Set string } // identifier of a DNS query; after MatchProto
	MatchCalm  struct{ Set string } // destination port that set does not have; after MatchProto
)

func (m MatchFamily) String() string { return fmt.Sprintf("meta nfproto ipv%d", m.Family) }
func (m MatchIn) String() string     { return "iif lo" }
func (m MatchOut) String() string {
	if m.Not {
		return "oif != lo"
	}
	return "oif lo"
}
func (m MatchDst) String() string {
	dst := m.P.String()
	if m.P.IsSingleIP() {
		dst = m.P.Addr().String()
	}
	return FamilyOf(m.P.Addr()).header() + " daddr " + dst
}
func (m MatchSrc) String() string {
	return FamilyOf(m.A).header() + " saddr " + m.A.String()
}
func (m MatchProto) String() string {
	if m.Not {
		return "meta l4proto != " + ProtoName(m.Proto)
	}
	return "meta l4proto " + ProtoName(m.Proto)
}
func (m MatchPort) String() string     { return fmt.Sprintf("th dport %d", m.Port) }
func (m MatchICMP) String() string     { return fmt.Sprintf("icmp type %d", m.Typ) }
func (m MatchHopLimit) String() string { return "ip6 hoplimit 255" }
func (m MatchUID) String() string {
	if m.Not {
		return fmt.Sprintf("meta skuid != %d", m.UID)
	}
	return fmt.Sprintf("meta skuid %d", m.UID)
}
func (m MatchGID) String() string {
	if m.Not {
		return fmt.Sprintf("meta skgid != %d", m.GID)
	}
	return fmt.Sprintf("meta skgid %d", m.GID)
}
func (m MatchOwned) String() string   { return "meta skuid >= 0" }
func (m MatchForeign) String() string { return "fib saddr type != local" }
func (m MatchSYN) String() string     { return "tcp flags & (fin|syn|rst|ack) == syn" }
func (m MatchOpening) String() string { return "tcp flags & (syn|ack) == syn" }
func (m MatchReset) String() string {
	if m.Not {
		return "tcp flags & rst != rst"
	}
	return "tcp flags & rst == rst"
}
func (m MatchSrcPort) String() string  { return fmt.Sprintf("th sport %d", m.Port) }
func (m MatchRouted) String() string   { return "exthdr rt exists" }
func (m MatchState) String() string    { return "ct state " + m.State.String() }
func (m MatchOriginal) String() string { return "ct direction original" }
func (m MatchReply) String() string    { return "ct direction reply" }
func (m MatchAnswer) String() string {
	return fmt.Sprintf("ct direction reply ct original %s daddr %s ct original proto-dst %d", FamilyOf(m.To.Addr()).header(), m.To.Addr(), m.To.Port())
}
func (m MatchHeld) String() string  { return "meta skuid exists" }
func (m MatchDNAT) String() string  { return "ct status dnat" }
func (m MatchQuery) String() string { return "@th,64,16 @" + m.Set }
func (m MatchCalm) String() string  { return "th dport != @" + m.Set }
func (m MatchSet) String() string {
	if m.From {
		return "saddr . l4proto . sport @" + m.Set
	}
	return "daddr . l4proto . dport @" + m.Set
}

// CtState is what connection tracking thinks of a packet.
type CtState uint8

const (
	StateInvalid CtState = iota
	StateEstablished
	StateRelated
	StateNew
)

func (s CtState) String() string {
	return [...]string{"invalid", "established", "related", "new"}[s]
}

// Verdict is what a rule does: one of the types below.
type Verdict interface{ String() string }

type (
	Accept   struct{}
	Drop     struct{} // without an answer
	Leave    struct{} // this chain
	Jump     struct{ Chain string }
	Count    struct{} // and go on
	Reset    struct{} // refuse by a TCP reset
	Prohibit struct{} // refuse by ICMP, administratively prohibited
	NoPort   struct{} // refuse by ICMP, port unreachable
	Redirect struct{ Port uint16 }
	Remember struct{ Set string } // the identifier of a DNS query; and go on
	Alarm    struct{ Set string } // the destination port; and go on
	Zone     struct{ Id uint16 }  // of the flow that the packet begins; and go on
	Keep     struct{ Set string } // where the packet comes from; accept it if it has room there
	Log      struct {             // to NFLOG, limited per element of set and in total
		Group uint16
		Set   string
		Ports bool // the protocol has ports
		Text  string
	}
)

func (Accept) String() string     { return "accept" }
func (Drop) String() string       { return "drop" }
func (Leave) String() string      { return "return" }
func (v Jump) String() string     { return "jump " + v.Chain }
func (Count) String() string      { return "counter" }
func (Reset) String() string      { return "reject with tcp reset" }
func (Prohibit) String() string   { return "reject with icmpx admin-prohibited" }
func (NoPort) String() string     { return "reject with icmpx port-unreachable" }
func (v Redirect) String() string { return fmt.Sprintf("redirect to :%d", v.Port) }
func (v Remember) String() string { return fmt.Sprintf("update @%s { @th,64,16 }", v.Set) }
func (v Alarm) String() string    { return fmt.Sprintf("update @%s { th dport }", v.Set) }
func (v Zone) String() string     { return fmt.Sprintf("ct original zone set %d", v.Id) }
func (v Keep) String() string {
	return fmt.Sprintf("update @%s { saddr . l4proto . sport } accept", v.Set)
}
func (v Log) String() string {
	port := "0"
	if v.Ports {
		port = "dport"
	}
	return fmt.Sprintf("update @%s { daddr . l4proto . %s limit rate %d/second burst %d } limit rate %d/second burst %d log group %d prefix %q snaplen %d",
		v.Set, port, DropRate, DropBurst, TotalRate, TotalBurst, v.Group, v.Text, SnapLen)
}

// What reaches the log: DropBurst packets to a destination at once, then
// DropRate a second, and of all destinations together TotalRate a second.
const (
	DropRate   = 1
	DropBurst  = 5
	TotalRate  = 200
	TotalBurst = 400

	LogPrefix = "agent-init"

	// InboundPrefix is Drop.Prefix of a connection from outside that was refused.
	InboundPrefix = "agent-init-in"

	// ObservedPrefix is Drop.Prefix of what was let out, see Config.Observe.
	ObservedPrefix = "agent-init-out"

	SnapLen = 128 // bytes of a packet: headers, and little of what they carry
)
