package nft

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// reg0 is the first register of the kernel's rule machine, and the only one of comparisons.
const reg0 = unix.NFT_REG_1

// word returns the register that begins n words of four bytes after reg0, by
// the name that the kernel gives it when it lists rules.
func word(n uint32) uint32 {
	if n%4 == 0 {
		return unix.NFT_REG_1 + n/4
	}
	return unix.NFT_REG32_00 + n
}

const (
	icmpxProhibited = 3      // NFT_REJECT_ICMPX_ADMIN_PROHIBITED of nf_tables.h
	ipsDstNAT       = 1 << 5 // IPS_DST_NAT of nf_conntrack_common.h

	// Flags of a TCP segment (RFC 9293, 3.1).
	tcpFIN = 1 << 0
	tcpSYN = 1 << 1
	tcpRST = 1 << 2
	tcpACK = 1 << 4
)

// fields are what loads a field into reg0.
var fields = map[string]expr.Any{
	"meta nfproto": meta(expr.MetaKeyNFPROTO),
	"meta l4proto": meta(expr.MetaKeyL4PROTO),
	"iif":          meta(expr.MetaKeyIIF),
	"oif":          meta(expr.MetaKeyOIF),
	"ct mark":      &expr.Ct{Key: expr.CtKeyMARK, Register: reg0},
	"meta skuid":   meta(expr.MetaKeySKUID),
	"meta skgid":   meta(expr.MetaKeySKGID),
	"ip head":      payload(expr.PayloadBaseNetworkHeader, 0, 1), // version, and length in words
	"ip saddr":     payload(expr.PayloadBaseNetworkHeader, 12, 4),
	"ip daddr":     payload(expr.PayloadBaseNetworkHeader, 16, 4),
	"ip6 hoplimit": payload(expr.PayloadBaseNetworkHeader, 7, 1),
	"ip6 saddr":    payload(expr.PayloadBaseNetworkHeader, 8, 16),
	"ip6 daddr":    payload(expr.PayloadBaseNetworkHeader, 24, 16),
	"icmp type":    payload(expr.PayloadBaseTransportHeader, 0, 1),
	"th sport":     payload(expr.PayloadBaseTransportHeader, 0, 2),
	"th dport":     payload(expr.PayloadBaseTransportHeader, 2, 2),
	"@th,64,16":    payload(expr.PayloadBaseTransportHeader, 8, 2), // identifier of a DNS message (RFC 1035, 4.1.1), behind the UDP header
}

var (
	loopback = number(1) // the kernel's LOOPBACK_IFINDEX, the same in every network namespace
	// Loading the uid ends the rule if the packet has no owner.
	owned = []expr.Any{meta(expr.MetaKeySKUID), &expr.Cmp{Op: expr.CmpOpGte, Register: reg0, Data: number(0)}}
)

// words are the matches on fields whose values are words.
var words = map[string][]expr.Any{
	"iif lo":               {meta(expr.MetaKeyIIF), equal(loopback)},
	"oif lo":               {meta(expr.MetaKeyOIF), equal(loopback)},
	"meta skuid >= 0":      owned,
	"meta skuid exists":    owned,
	"fib saddr type local": {&expr.Fib{Register: reg0, FlagSADDR: true, ResultADDRTYPE: true}, equal(number(unix.RTN_LOCAL))},
	"exthdr rt exists": {
		&expr.Exthdr{DestRegister: reg0, Type: unix.IPPROTO_ROUTING, Len: 1, Flags: unix.NFT_EXTHDR_F_PRESENT, Op: expr.ExthdrOpIpv6}, equal([]byte{1}),
	},
	"tcp flags & (fin|syn|rst|ack) syn": tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, tcpSYN),
	"tcp flags & rst rst":               tcpFlags(tcpRST, tcpRST),
	"ct direction original":             {&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg0}, equal([]byte{expr.CtDirOriginal})},
	"ct direction reply":                {&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg0}, equal([]byte{expr.CtDirReply})},
	"ct state invalid":                  ctBits(expr.CtKeySTATE, expr.CtStateBitINVALID),
	"ct state established":              ctBits(expr.CtKeySTATE, expr.CtStateBitESTABLISHED),
	"ct state related":                  ctBits(expr.CtKeySTATE, expr.CtStateBitRELATED),
	"ct state new":                      ctBits(expr.CtKeySTATE, expr.CtStateBitNEW),
	"ct status dnat":                    ctBits(expr.CtKeySTATUS, ipsDstNAT),
}

func meta(key expr.MetaKey) *expr.Meta { return &expr.Meta{Key: key, Register: reg0} }

func payload(base expr.PayloadBase, offset, size uint32) *expr.Payload {
	return &expr.Payload{DestRegister: reg0, Base: base, Offset: offset, Len: size}
}

func number(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

func equal(value []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg0, Data: value} }

func masked(mask []byte) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))}
}

// tcpFlags compares those of the flags of a segment that are in mask.
func tcpFlags(mask, want byte) []expr.Any {
	return []expr.Any{payload(expr.PayloadBaseTransportHeader, 13, 1), masked([]byte{mask}), equal([]byte{want})}
}

// ctBits asks for one of bits in a field of the flow.
func ctBits(key expr.CtKey, bits uint32) []expr.Any {
	return []expr.Any{&expr.Ct{Key: key, Register: reg0}, masked(number(bits)), &expr.Cmp{Op: expr.CmpOpNeq, Register: reg0, Data: number(0)}}
}

func compile(r plan.Rule, p plan.Plan) ([]expr.Any, error) {
	var out []expr.Any
	for _, m := range r.Matches {
		es, err := compileMatch(m, p)
		if err != nil {
			return nil, err
		}
		out = append(out, es...)
	}
	es, err := compileVerdict(r.Verdict, p)
	return append(out, es...), err
}

func compileMatch(m plan.Match, p plan.Plan) ([]expr.Any, error) {
	if m.Set != "" {
		s, err := p.Set(m.Set)
		if err != nil {
			return nil, err
		}
		key, err := loadKey(m.Field, s.Family)
		return append(key, &expr.Lookup{SourceRegister: reg0, SetName: m.Set, Invert: m.Not}), err
	}
	var out []expr.Any
	switch v := m.Value.(type) {
	case netip.AddrPort:
		return answering(v), nil
	case string:
		out = slices.Clone(words[m.Field+" "+v])
	default:
		out = compare(m.Field, v)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("can't translate %s", m)
	}
	if m.Not {
		opposite := *out[len(out)-1].(*expr.Cmp)
		opposite.Op = expr.CmpOpNeq
		out[len(out)-1] = &opposite
	}
	return out, nil
}

// compare compares a field with a value; it returns nothing if it knows none of them.
func compare(field string, value any) (out []expr.Any) {
	load, ok := fields[field]
	if !ok {
		return nil
	}
	switch header, _, _ := strings.Cut(field, " "); header {
	case "ip":
		out = compare("meta nfproto", plan.IPv4)
	case "ip6":
		out = compare("meta nfproto", plan.IPv6)
	}
	out = append(out, load)
	switch v := value.(type) {
	case plan.Family:
		return append(out, equal([]byte{map[plan.Family]byte{plan.IPv4: unix.NFPROTO_IPV4, plan.IPv6: unix.NFPROTO_IPV6}[v]}))
	case uint8:
		return append(out, equal([]byte{v}))
	case uint16:
		return append(out, equal(binaryutil.BigEndian.PutUint16(v)))
	case uint32:
		return append(out, equal(number(v)))
	case netip.Prefix:
		if !v.IsSingleIP() {
			out = append(out, masked(net.CIDRMask(v.Bits(), v.Addr().BitLen())))
		}
		return append(out, equal(v.Addr().AsSlice()))
	}
	return nil
}

// answering asks for the reply direction of a flow that was begun toward a server.
func answering(server netip.AddrPort) []expr.Any {
	key := map[bool]expr.CtKey{false: expr.CtKeyDSTIP, true: expr.CtKeyDSTIP6}[server.Addr().Is6()]
	return slices.Concat(compare("meta nfproto", plan.FamilyOf(server.Addr())), words["ct direction reply"], []expr.Any{
		&expr.Ct{Key: key, Register: reg0, Direction: expr.CtDirOriginal},
		equal(server.Addr().AsSlice()),
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: reg0, Direction: expr.CtDirOriginal},
		equal(binaryutil.BigEndian.PutUint16(server.Port())),
	})
}

// verdicts are those that say no more than their words.
var verdicts = map[string]expr.Any{
	"accept":                             &expr.Verdict{Kind: expr.VerdictAccept},
	"drop":                               &expr.Verdict{Kind: expr.VerdictDrop},
	"return":                             &expr.Verdict{Kind: expr.VerdictReturn},
	"counter":                            &expr.Counter{},
	"masquerade":                         &expr.Masq{},
	"reject with tcp reset":              &expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	"reject with icmpx admin-prohibited": &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: icmpxProhibited},
}

func compileVerdict(v plan.Verdict, p plan.Plan) ([]expr.Any, error) {
	if e, ok := verdicts[v.Do]; ok {
		return []expr.Any{e}, nil
	}
	switch v.Do {
	case "jump":
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: v.To}}, nil
	case "redirect":
		return []expr.Any{
			&expr.Immediate{Register: reg0, Data: binaryutil.BigEndian.PutUint16(v.N)},
			&expr.Redir{RegisterProtoMin: reg0, RegisterProtoMax: reg0, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
		}, nil
	case "dnat":
		return lead(v.At), nil
	case "ct mark set":
		return []expr.Any{&expr.Immediate{Register: reg0, Data: number(v.M)}, &expr.Ct{Key: expr.CtKeyMARK, Register: reg0, SourceRegister: true}}, nil
	case setZone: // the library leaves the direction out: see zone.go
		return []expr.Any{
			&expr.Immediate{Register: reg0, Data: binaryutil.NativeEndian.PutUint16(v.N)},
			&expr.Ct{Key: expr.CtKeyZONE, Register: reg0, SourceRegister: true},
		}, nil
	}
	s, err := p.Set(v.To)
	if err != nil {
		return nil, fmt.Errorf("can't translate %s: %w", v, err)
	}
	update := &expr.Dynset{SrcRegKey: reg0, SetName: v.To, Operation: unix.NFT_DYNSET_OP_UPDATE}
	switch v.Do {
	case "update":
		key, err := loadKey(v.Text, s.Family)
		return append(key, update), err
	case "keep": // the kernel goes on to the next rule if the set is full
		key, err := loadKey("saddr . l4proto . sport", s.Family)
		return append(key, update, verdicts["accept"]), err
	case "log":
		key, err := loadKey("daddr . l4proto . dport", s.Family)
		if err == nil && !v.Ports {
			key[2] = &expr.Immediate{Register: key[2].(*expr.Payload).DestRegister, Data: make([]byte, 4)}
		}
		update.Exprs = []expr.Any{limit(s.Each)}
		return append(key, update, limit(v.Total), &expr.Log{
			Key:   1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN,
			Group: v.N, Data: []byte(v.Text), Snaplen: plan.SnapLen,
		}), err
	}
	return nil, fmt.Errorf("can't translate %s", v)
}

// lead has the flow of a packet go to another address and port.
func lead(to netip.AddrPort) []expr.Any {
	family := map[bool]uint32{false: unix.NFPROTO_IPV4, true: unix.NFPROTO_IPV6}[to.Addr().Is6()]
	return []expr.Any{
		&expr.Immediate{Register: reg0, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: unix.NFT_REG_2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: reg0, RegAddrMax: reg0,
			RegProtoMin: unix.NFT_REG_2, RegProtoMax: unix.NFT_REG_2, Specified: true,
		},
	}
}

func limit(l plan.Limit) *expr.Limit {
	return &expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(l.Rate), Unit: expr.LimitTimeSecond, Burst: l.Burst}
}

// loadKey puts a set's key into the registers from reg0 on: a field, or address, protocol and port.
func loadKey(field string, f plan.Family) ([]expr.Any, error) {
	if e, ok := fields[field]; ok {
		return []expr.Any{e}, nil
	}
	parts := strings.Split(field, " . l4proto . ")
	addr, ok := fields[f.Header()+parts[0]].(*expr.Payload)
	if !ok || len(parts) != 2 || fields["th "+parts[1]] == nil {
		return nil, fmt.Errorf("can't load %q", field)
	}
	port := *fields["th "+parts[1]].(*expr.Payload)
	port.DestRegister = word(addr.Len/4 + 1)
	return []expr.Any{addr, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: word(addr.Len / 4)}, &port}, nil
}
