package nft

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// reg0 is the first register of the kernel's rule machine. Single comparisons
// use no other.
const reg0 = unix.NFT_REG_1

// word returns the register that begins n words of four bytes after reg0, by
// the name that the kernel gives it when it lists rules.
func word(n uint32) uint32 {
	if n%4 == 0 {
		return unix.NFT_REG_1 + n/4
	}
	return unix.NFT_REG32_00 + n
}

// loIndex is the index of the loopback interface in every network namespace;
// the kernel has it as LOOPBACK_IFINDEX.
const loIndex = 1

// icmpxProhibited is NFT_REJECT_ICMPX_ADMIN_PROHIBITED of nf_tables.h.
const icmpxProhibited = 3

// ipsDstNAT is IPS_DST_NAT of nf_conntrack_common.h.
const ipsDstNAT = 1 << 5

// Flags of a TCP segment (RFC 9293, 3.1).
const (
	tcpFIN = 1 << 0
	tcpSYN = 1 << 1
	tcpRST = 1 << 2
	tcpACK = 1 << 4
)

// Short names for what comparisons ask.
const (
	equal    = expr.CmpOpEq
	notEqual = expr.CmpOpNeq
)

// compile translates r for the kernel.
func compile(r plan.Rule, sets map[string]plan.Set) ([]expr.Any, error) {
	var out []expr.Any
	for _, m := range r.Matches {
		es, err := compileMatch(m, sets)
		if err != nil {
			return nil, err
		}
		out = append(out, es...)
	}
	es, err := compileVerdict(r.Verdict, sets)
	return append(out, es...), err
}

// unless is the comparison that a match makes, or that it makes negated.
func unless(not bool) expr.CmpOp {
	if not {
		return notEqual
	}
	return equal
}

func compileMatch(m plan.Match, sets map[string]plan.Set) ([]expr.Any, error) {
	switch m := m.(type) {
	case plan.MatchFamily:
		return meta(expr.MetaKeyNFPROTO, equal, []byte{m.Family.Nfproto()}), nil
	case plan.MatchIn:
		return meta(expr.MetaKeyIIF, equal, binaryutil.NativeEndian.PutUint32(loIndex)), nil
	case plan.MatchOut:
		return meta(expr.MetaKeyOIF, unless(m.Not), binaryutil.NativeEndian.PutUint32(loIndex)), nil
	case plan.MatchDst:
		return destination(m.P), nil
	case plan.MatchSrc:
		return source(m.A), nil
	case plan.MatchProto:
		return meta(expr.MetaKeyL4PROTO, unless(m.Not), []byte{m.Proto}), nil
	case plan.MatchPort:
		return field(expr.PayloadBaseTransportHeader, 2, binaryutil.BigEndian.PutUint16(m.Port)), nil
	case plan.MatchICMP:
		return field(expr.PayloadBaseTransportHeader, 0, []byte{m.Typ}), nil
	case plan.MatchHopLimit:
		return append(meta(expr.MetaKeyNFPROTO, equal, []byte{plan.IPv6.Nfproto()}),
			field(expr.PayloadBaseNetworkHeader, 7, []byte{255})...), nil
	case plan.MatchUID:
		return meta(expr.MetaKeySKUID, unless(m.Not), binaryutil.NativeEndian.PutUint32(m.UID)), nil
	case plan.MatchGID:
		return meta(expr.MetaKeySKGID, unless(m.Not), binaryutil.NativeEndian.PutUint32(m.GID)), nil
	case plan.MatchOwned, plan.MatchHeld:
		// Loading the uid ends the rule if the packet has no owner.
		return meta(expr.MetaKeySKUID, expr.CmpOpGte, binaryutil.NativeEndian.PutUint32(0)), nil
	case plan.MatchForeign:
		return []expr.Any{
			&expr.Fib{Register: reg0, FlagSADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: notEqual, Register: reg0, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		}, nil
	case plan.MatchSYN:
		return tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, tcpSYN), nil
	case plan.MatchReset:
		flags := tcpFlags(tcpRST, tcpRST)
		if m.Not {
			flags[len(flags)-1] = &expr.Cmp{Op: notEqual, Register: reg0, Data: []byte{tcpRST}}
		}
		return flags, nil
	case plan.MatchSrcPort:
		return field(expr.PayloadBaseTransportHeader, 0, binaryutil.BigEndian.PutUint16(m.Port)), nil
	case plan.MatchRouted:
		return []expr.Any{
			&expr.Exthdr{DestRegister: reg0, Type: unix.IPPROTO_ROUTING, Len: 1, Flags: unix.NFT_EXTHDR_F_PRESENT, Op: expr.ExthdrOpIpv6},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg0, Data: []byte{1}},
		}, nil
	}
	return compileTracked(m, sets)
}

// compileTracked translates matches on connection tracking, and on sets.
func compileTracked(m plan.Match, sets map[string]plan.Set) ([]expr.Any, error) {
	switch m := m.(type) {
	case plan.MatchAnswer:
		return answering(m.To), nil
	case plan.MatchState:
		return ctBits(expr.CtKeySTATE, map[plan.CtState]uint32{
			plan.StateInvalid:     expr.CtStateBitINVALID,
			plan.StateEstablished: expr.CtStateBitESTABLISHED,
			plan.StateRelated:     expr.CtStateBitRELATED,
			plan.StateNew:         expr.CtStateBitNEW,
		}[m.State]), nil
	case plan.MatchOriginal:
		return []expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg0},
			&expr.Cmp{Op: equal, Register: reg0, Data: []byte{expr.CtDirOriginal}},
		}, nil
	case plan.MatchReply:
		return []expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg0},
			&expr.Cmp{Op: equal, Register: reg0, Data: []byte{expr.CtDirReply}},
		}, nil
	case plan.MatchDNAT:
		return ctBits(expr.CtKeySTATUS, ipsDstNAT), nil
	case plan.MatchSet:
		s, ok := sets[m.Set]
		if !ok {
			return nil, fmt.Errorf("no set %q", m.Set)
		}
		load := loadKey
		if m.From {
			load = loadSourceKey
		}
		return append(load(s.Family, true), &expr.Lookup{SourceRegister: reg0, SetName: m.Set}), nil
	case plan.MatchCalm:
		return []expr.Any{destinationPort(), &expr.Lookup{SourceRegister: reg0, SetName: m.Set, Invert: true}}, nil
	case plan.MatchQuery:
		return []expr.Any{queryID(), &expr.Lookup{SourceRegister: reg0, SetName: m.Set}}, nil
	}
	return nil, fmt.Errorf("can't translate %T", m)
}

func compileVerdict(v plan.Verdict, sets map[string]plan.Set) ([]expr.Any, error) {
	one := func(e expr.Any) ([]expr.Any, error) { return []expr.Any{e}, nil }
	switch v := v.(type) {
	case plan.Accept:
		return one(&expr.Verdict{Kind: expr.VerdictAccept})
	case plan.Drop:
		return one(&expr.Verdict{Kind: expr.VerdictDrop})
	case plan.Leave:
		return one(&expr.Verdict{Kind: expr.VerdictReturn})
	case plan.Jump:
		return one(&expr.Verdict{Kind: expr.VerdictJump, Chain: v.Chain})
	case plan.Count:
		return one(&expr.Counter{})
	case plan.Reset:
		return one(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	case plan.Prohibit:
		return one(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: icmpxProhibited})
	case plan.Redirect:
		return []expr.Any{
			&expr.Immediate{Register: reg0, Data: binaryutil.BigEndian.PutUint16(v.Port)},
			&expr.Redir{RegisterProtoMin: reg0, RegisterProtoMax: reg0, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
		}, nil
	case plan.Remember:
		return []expr.Any{queryID(), &expr.Dynset{SrcRegKey: reg0, SetName: v.Set, Operation: unix.NFT_DYNSET_OP_UPDATE}}, nil
	case plan.Alarm:
		return []expr.Any{destinationPort(), &expr.Dynset{SrcRegKey: reg0, SetName: v.Set, Operation: unix.NFT_DYNSET_OP_UPDATE}}, nil
	case plan.Zone: // the library leaves the direction out: see zone.go
		return []expr.Any{
			&expr.Immediate{Register: reg0, Data: binaryutil.NativeEndian.PutUint16(v.Id)},
			&expr.Ct{Key: expr.CtKeyZONE, Register: reg0, SourceRegister: true},
		}, nil
	case plan.Keep:
		s, ok := sets[v.Set]
		if !ok {
			return nil, fmt.Errorf("no set %q", v.Set)
		}
		// The kernel goes on to the next rule if the set is full.
		return append(loadSourceKey(s.Family, true),
			&expr.Dynset{SrcRegKey: reg0, SetName: v.Set, Operation: unix.NFT_DYNSET_OP_UPDATE},
			&expr.Verdict{Kind: expr.VerdictAccept}), nil
	case plan.Log:
		s, ok := sets[v.Set]
		if !ok {
			return nil, fmt.Errorf("no set %q", v.Set)
		}
		return append(loadKey(s.Family, v.Ports),
			&expr.Dynset{SrcRegKey: reg0, SetName: v.Set, Operation: unix.NFT_DYNSET_OP_UPDATE, Exprs: []expr.Any{
				&expr.Limit{Type: expr.LimitTypePkts, Rate: plan.DropRate, Unit: expr.LimitTimeSecond, Burst: plan.DropBurst},
			}},
			&expr.Limit{Type: expr.LimitTypePkts, Rate: plan.TotalRate, Unit: expr.LimitTimeSecond, Burst: plan.TotalBurst},
			&expr.Log{
				Key:   1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN,
				Group: v.Group, Data: []byte(v.Text), Snaplen: plan.SnapLen,
			}), nil
	}
	return nil, fmt.Errorf("can't translate %T", v)
}

// queryID loads the identifier of a DNS message, the first field behind the UDP
// header (RFC 1035, 4.1.1).
func queryID() *expr.Payload {
	return &expr.Payload{DestRegister: reg0, Base: expr.PayloadBaseTransportHeader, Offset: 8, Len: 2}
}

func destinationPort() *expr.Payload {
	return &expr.Payload{DestRegister: reg0, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// meta compares what the kernel knows about a packet with value.
func meta(key expr.MetaKey, op expr.CmpOp, value []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: reg0}, &expr.Cmp{Op: op, Register: reg0, Data: value}}
}

// answering asks for the reply direction of a flow that was begun toward a server.
func answering(server netip.AddrPort) []expr.Any {
	key := expr.CtKeyDSTIP
	if server.Addr().Is6() {
		key = expr.CtKeyDSTIP6
	}
	return append(meta(expr.MetaKeyNFPROTO, equal, []byte{plan.FamilyOf(server.Addr()).Nfproto()}),
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg0},
		&expr.Cmp{Op: equal, Register: reg0, Data: []byte{expr.CtDirReply}},
		&expr.Ct{Key: key, Register: reg0, Direction: expr.CtDirOriginal},
		&expr.Cmp{Op: equal, Register: reg0, Data: server.Addr().AsSlice()},
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: reg0, Direction: expr.CtDirOriginal},
		&expr.Cmp{Op: equal, Register: reg0, Data: binaryutil.BigEndian.PutUint16(server.Port())})
}

// field compares bytes of a header with value.
func field(base expr.PayloadBase, offset uint32, value []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg0, Base: base, Offset: offset, Len: uint32(len(value))},
		&expr.Cmp{Op: equal, Register: reg0, Data: value},
	}
}

// ctBits asks for one of bits in a field of the flow.
func ctBits(key expr.CtKey, bits uint32) []expr.Any {
	zero := make([]byte, 4)
	return []expr.Any{
		&expr.Ct{Key: key, Register: reg0},
		&expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: zero},
		&expr.Cmp{Op: notEqual, Register: reg0, Data: zero},
	}
}

// destination compares the destination address, family included, with p.
func destination(p netip.Prefix) []expr.Any {
	f := plan.FamilyOf(p.Addr())
	out := append(meta(expr.MetaKeyNFPROTO, equal, []byte{f.Nfproto()}), loadDestination(f))
	if !p.IsSingleIP() {
		n := uint32(p.Addr().BitLen())
		out = append(out, &expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: n / 8,
			Mask: net.CIDRMask(p.Bits(), int(n)), Xor: make([]byte, n/8)})
	}
	return append(out, &expr.Cmp{Op: equal, Register: reg0, Data: p.Addr().AsSlice()})
}

// source compares the source address, family included, with a.
func source(a netip.Addr) []expr.Any {
	return append(meta(expr.MetaKeyNFPROTO, equal, []byte{plan.FamilyOf(a).Nfproto()}),
		loadSource(plan.FamilyOf(a)), &expr.Cmp{Op: equal, Register: reg0, Data: a.AsSlice()})
}

// tcpFlags compares those of the flags of a segment that are in mask.
func tcpFlags(mask, want byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg0, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: equal, Register: reg0, Data: []byte{want}},
	}
}

func loadSource(f plan.Family) *expr.Payload {
	p := &expr.Payload{DestRegister: reg0, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
	if f == plan.IPv6 {
		p.Offset, p.Len = 8, 16
	}
	return p
}

func loadDestination(f plan.Family) *expr.Payload {
	p := &expr.Payload{DestRegister: reg0, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
	if f == plan.IPv6 {
		p.Offset, p.Len = 24, 16
	}
	return p
}

// loadKey puts the key of a set into the registers from reg0 on: destination,
// protocol, and port, or 0 if the protocol has none.
func loadKey(f plan.Family, ports bool) []expr.Any {
	return loadEnd(loadDestination(f), 2, ports)
}

// loadSourceKey is loadKey of where the packet comes from.
func loadSourceKey(f plan.Family, ports bool) []expr.Any { return loadEnd(loadSource(f), 0, ports) }

func loadEnd(addr *expr.Payload, portAt uint32, ports bool) []expr.Any {
	next := addr.Len / 4
	out := []expr.Any{addr, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: word(next)}}
	if ports {
		return append(out, &expr.Payload{DestRegister: word(next + 1), Base: expr.PayloadBaseTransportHeader, Offset: portAt, Len: 2})
	}
	return append(out, &expr.Immediate{Register: word(next + 1), Data: make([]byte, 4)})
}
