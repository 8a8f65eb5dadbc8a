package xtables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// How long after a question of the guard's root may send one to a server, and
// how many a second: see plan.MatchQuery below.
const (
	askedRate  = 50
	askedBurst = 100
)

// xtAsked is the list of xt_recent that says when the guard last asked.
const xtAsked = xtPrefix + plan.AskedSet

// match adds m to d. It returns no draft if no packet of the family matches, and
// several if any of them has to.
func (r *xtRenderer) match(d xtDraft, m plan.Match, v plan.Verdict) ([]xtDraft, error) {
	one := func(words ...string) ([]xtDraft, error) { return []xtDraft{d.with(words...)}, nil }
	only := func(f plan.Family, words ...string) ([]xtDraft, error) {
		if f != r.family {
			return nil, nil
		}
		return one(words...)
	}
	switch m := m.(type) {
	case plan.MatchFamily:
		return only(m.Family)
	case plan.MatchIn:
		return one("-i", "lo")
	case plan.MatchOut:
		if m.Not {
			return one("!", "-o", "lo")
		}
		return one("-o", "lo")
	case plan.MatchDst:
		return only(plan.FamilyOf(m.P.Addr()), "-d", m.P.String())
	case plan.MatchSrc:
		return only(plan.FamilyOf(m.A), "-s", netip.PrefixFrom(m.A, m.A.BitLen()).String())
	case plan.MatchProto:
		if m.Not {
			d.notProtos = append(slices.Clone(d.notProtos), m.Proto)
			return one()
		}
		return d.of(m.Proto), nil
	case plan.MatchPort:
		if d.proto != plan.ProtoTCP && d.proto != plan.ProtoUDP {
			return nil, fmt.Errorf("a port without tcp or udp: %w", nfnetlink.ErrUnsupported)
		}
		return one("-m", plan.ProtoName(d.proto), "--dport", fmt.Sprint(m.Port))
	case plan.MatchICMP:
		// ICMPv6 over IPv4, or the reverse, is no message of either: nothing
		// asks for its type.
		switch d.proto {
		case plan.ProtoICMP:
			return only(plan.IPv4, "-m", "icmp", "--icmp-type", fmt.Sprint(m.Typ))
		case plan.ProtoICMPv6:
			return only(plan.IPv6, "-m", "icmp6", "--icmpv6-type", fmt.Sprint(m.Typ))
		}
		return nil, fmt.Errorf("a type without icmp: %w", nfnetlink.ErrUnsupported)
	case plan.MatchHopLimit:
		return only(plan.IPv6, "-m", "hl", "--hl-eq", "255")
	case plan.MatchUID:
		return r.owner(d, "--uid-owner", m.UID, m.Not), nil
	case plan.MatchGID:
		return r.owner(d, "--gid-owner", m.GID, m.Not), nil
	case plan.MatchOwned:
		return r.owned(d), nil
	case plan.MatchHeld:
		return r.held(d), nil
	case plan.MatchForeign:
		return one("-m", "addrtype", "!", "--src-type", "LOCAL")
	case plan.MatchSYN:
		return one(asTCP(d, []string{"--dport"}, "--tcp-flags", "FIN,SYN,RST,ACK", "SYN")...)
	case plan.MatchSrcPort:
		if d.proto != plan.ProtoTCP && d.proto != plan.ProtoUDP {
			return nil, fmt.Errorf("a port without tcp or udp: %w", nfnetlink.ErrUnsupported)
		}
		return one("-m", plan.ProtoName(d.proto), "--sport", fmt.Sprint(m.Port))
	case plan.MatchOpening:
		return one(asTCP(d, []string{"--dport", "--sport"}, "--tcp-flags", "SYN,ACK", "SYN")...)
	case plan.MatchReset:
		flags := []string{"--tcp-flags", "RST", "RST"}
		if m.Not {
			flags = append([]string{"!"}, flags...)
		}
		return one(asTCP(d, []string{"--dport", "--sport"}, flags...)...)
	case plan.MatchRouted:
		return only(plan.IPv6, "-m", "rt")
	}
	return r.matchTracked(d, m, v)
}

// owner asks for whose socket sent a packet. Negated, the match takes packets that no
// process sent as well.
func (r *xtRenderer) owner(d xtDraft, of string, id uint32, not bool) []xtDraft {
	if not {
		return r.owned(d, "-m", "owner", "!", of, fmt.Sprint(id))
	}
	return []xtDraft{d.with("-m", "owner", of, fmt.Sprint(id))}
}

// asTCP are flags as a match of their own, unless d has one of ports already: they then
// belong to the same match.
func asTCP(d xtDraft, ports []string, flags ...string) []string {
	if slices.ContainsFunc(ports, func(p string) bool { return slices.Contains(d.words, p) }) {
		return flags
	}
	return append([]string{"-m", "tcp"}, flags...)
}

// matchTracked is match for what is about connection tracking, and sets.
func (r *xtRenderer) matchTracked(d xtDraft, m plan.Match, v plan.Verdict) ([]xtDraft, error) {
	one := func(words ...string) ([]xtDraft, error) { return []xtDraft{d.with(words...)}, nil }
	switch m := m.(type) {
	case plan.MatchAnswer:
		if plan.FamilyOf(m.To.Addr()) != r.family {
			return nil, nil
		}
		return one("-m", "conntrack", "--ctdir", "REPLY",
			"--ctorigdst", m.To.Addr().String(), "--ctorigdstport", fmt.Sprint(m.To.Port()))
	case plan.MatchState:
		return one("-m", "conntrack", "--ctstate", strings.ToUpper(m.State.String()))
	case plan.MatchOriginal:
		return one("-m", "conntrack", "--ctdir", "ORIGINAL")
	case plan.MatchReply:
		return one("-m", "conntrack", "--ctdir", "REPLY")
	case plan.MatchDNAT:
		return one("-m", "conntrack", "--ctstate", "DNAT")
	case plan.MatchSet:
		return r.inSet(d, m)
	case plan.MatchQuery:
		return r.asked(d, v)
	case plan.MatchCalm: // without identifiers, none is known to be wrong
		return one()
	}
	return nil, fmt.Errorf("no match of iptables for %T: %w", m, nfnetlink.ErrUnsupported)
}

// of asks for a protocol, besides what d asks for.
func (d xtDraft) of(proto uint8) []xtDraft {
	if d.proto != 0 && d.proto != proto {
		return nil
	}
	d.proto = proto
	return []xtDraft{d}
}

// owned asks that a process sent the packet: that its socket belongs to any uid
// at all. (--socket-exists takes the kernel's own sockets as well.)
func (r *xtRenderer) owned(d xtDraft, more ...string) []xtDraft {
	var out []xtDraft
	for _, u := range r.uids {
		out = append(out, d.with(append([]string{"-m", "owner", "--uid-owner", u.String()}, more...)...))
	}
	return out
}

// held asks that a process has the socket open. Where this user namespace has not
// all uids, that of an engine outside of it is none that a rule can name; then the
// kernel's own sockets, which have no file, count as well (xt_owner.c).
func (r *xtRenderer) held(d xtDraft) []xtDraft {
	if len(r.uids) == 1 && r.uids[0] == (uidRange{0, maxUID}) {
		return r.owned(d)
	}
	return []xtDraft{d.with("-m", "owner", "--socket-exists")}
}

// inSet asks for any of the ipsets that together are the plan's set.
func (r *xtRenderer) inSet(d xtDraft, m plan.MatchSet) ([]xtDraft, error) {
	s, ok := r.sets[m.Set]
	if !ok {
		return nil, fmt.Errorf("no set %q", m.Set)
	}
	if s.Family != r.family {
		return nil, nil
	}
	var out []xtDraft
	for _, part := range partsOf(s) {
		flags := "dst"
		if m.From {
			flags = "src"
		}
		if part.typ != hashNet {
			flags += "," + flags
		}
		ds := []xtDraft{d}
		if part.proto != 0 {
			ds = d.of(part.proto)
		}
		for _, d := range ds {
			out = append(out, d.with("-m", "set", "--match-set", part.name, flags))
		}
	}
	return out, nil
}

// asked is the weaker form of a match that iptables hasn't: it can't remember the
// identifier of a question, only that the guard has asked anything a moment ago.
// The guard asks the engine over IPv4, and a list knows its own family only; so
// over IPv6 nothing is passed on.
func (r *xtRenderer) asked(d xtDraft, v plan.Verdict) ([]xtDraft, error) {
	switch v.(type) {
	case plan.Accept:
		d = d.with("-m", "limit", "--limit", fmt.Sprintf("%d/sec", askedRate), "--limit-burst", fmt.Sprint(askedBurst))
	case plan.Leave:
	default: // only to let pass less is to be as closed
		return nil, fmt.Errorf("no match of iptables for the identifiers of questions: %w", nfnetlink.ErrUnsupported)
	}
	if r.family != plan.IPv4 {
		return nil, nil
	}
	return []xtDraft{d.with("-m", "recent", "--rcheck", "--seconds", fmt.Sprint(int(plan.AskedLife.Seconds())),
		"--name", xtAsked, "--mask", "0.0.0.0", "--rdest")}, nil
}

// verdict returns the end of a rule.
func (r *xtRenderer) verdict(d xtDraft, v plan.Verdict) ([]string, error) {
	switch v := v.(type) {
	case plan.Accept:
		return []string{"-j", "ACCEPT"}, nil
	case plan.Drop:
		return []string{"-j", "DROP"}, nil
	case plan.Leave:
		return []string{"-j", "RETURN"}, nil
	case plan.Jump:
		return []string{"-j", xtPrefix + v.Chain}, nil
	case plan.Count: // each rule counts
		return nil, nil
	case plan.Reset:
		if d.proto != plan.ProtoTCP {
			return nil, fmt.Errorf("a reset without tcp: %w", nfnetlink.ErrUnsupported)
		}
		return []string{"-j", "REJECT", "--reject-with", "tcp-reset"}, nil
	case plan.Prohibit:
		if r.family == plan.IPv6 {
			return []string{"-j", "REJECT", "--reject-with", "icmp6-adm-prohibited"}, nil
		}
		return []string{"-j", "REJECT", "--reject-with", "icmp-admin-prohibited"}, nil
	case plan.NoPort:
		if r.family == plan.IPv6 {
			return []string{"-j", "REJECT", "--reject-with", "icmp6-port-unreachable"}, nil
		}
		return []string{"-j", "REJECT", "--reject-with", "icmp-port-unreachable"}, nil
	case plan.Redirect:
		if d.proto != plan.ProtoTCP && d.proto != plan.ProtoUDP {
			return nil, fmt.Errorf("a redirection without tcp or udp: %w", nfnetlink.ErrUnsupported)
		}
		return []string{"-j", "REDIRECT", "--to-ports", fmt.Sprint(v.Port)}, nil
	case plan.Remember:
		if r.family != plan.IPv4 {
			return nil, fmt.Errorf("no list of questions over IPv6: %w", nfnetlink.ErrUnsupported)
		}
		return []string{"-m", "recent", "--set", "--name", xtAsked, "--mask", "0.0.0.0", "--rdest"}, nil
	case plan.Zone:
		return []string{"-j", "CT", "--zone-orig", fmt.Sprint(v.Id)}, nil
	case plan.Keep: // and the next rule accepts, see rule
		return []string{"-j", "SET", "--add-set", partName(v.Set, ""), "src,src", "--exist", "--timeout", fmt.Sprint(int(plan.LiveFor.Seconds()))}, nil
	case plan.Log:
		return r.log(d, v), nil
	}
	return nil, fmt.Errorf("no target of iptables for %T: %w", v, nfnetlink.ErrUnsupported)
}

// log limits per destination first, so that one that is flooded doesn't hide the
// others. A table that is full drops the packet without an answer.
func (r *xtRenderer) log(d xtDraft, v plan.Log) []string {
	mode, kind := "dstip,dstport", "o"
	switch {
	case !v.Ports:
		mode = "dstip"
	case d.proto == plan.ProtoTCP:
		kind = "t"
	case d.proto == plan.ProtoUDP:
		kind = "u"
	}
	return []string{
		"-m", "hashlimit", "--hashlimit-upto", fmt.Sprintf("%d/sec", plan.DropRate), "--hashlimit-burst", fmt.Sprint(plan.DropBurst),
		"--hashlimit-mode", mode, "--hashlimit-name", fmt.Sprintf("%s%d%s", xtPrefix, r.family, kind),
		"--hashlimit-htable-max", fmt.Sprint(plan.MaxMeter), "--hashlimit-htable-expire", fmt.Sprint(plan.MeterLife.Milliseconds()),
		"-m", "limit", "--limit", fmt.Sprintf("%d/sec", plan.TotalRate), "--limit-burst", fmt.Sprint(plan.TotalBurst),
		"-j", "NFLOG", "--nflog-group", fmt.Sprint(v.Group), "--nflog-prefix", v.Text, "--nflog-size", fmt.Sprint(plan.SnapLen),
	}
}
