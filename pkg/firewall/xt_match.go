package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// How long after a question of the guard's root may send one to a server, and
// how many a second: see matchQuery below.
const (
	askedRate  = 50
	askedBurst = 100
)

// xtAsked is the list of xt_recent that says when the guard last asked.
const xtAsked = xtPrefix + askedSet

// match adds m to d. It returns no draft if no packet of the family matches, and
// several if any of them has to.
func (r *xtRenderer) match(d xtDraft, m match, v verdict) ([]xtDraft, error) {
	one := func(words ...string) ([]xtDraft, error) { return []xtDraft{d.with(words...)}, nil }
	only := func(f family, words ...string) ([]xtDraft, error) {
		if f != r.family {
			return nil, nil
		}
		return one(words...)
	}
	switch m := m.(type) {
	case matchFamily:
		return only(m.family)
	case matchIn:
		return one("-i", "lo")
	case matchOut:
		if m.not {
			return one("!", "-o", "lo")
		}
		return one("-o", "lo")
	case matchDst:
		return only(familyOf(m.p.Addr()), "-d", m.p.String())
	case matchSrc:
		return only(familyOf(m.a), "-s", netip.PrefixFrom(m.a, m.a.BitLen()).String())
	case matchProto:
		if m.not {
			d.notProtos = append(slices.Clone(d.notProtos), m.proto)
			return one()
		}
		return d.of(m.proto), nil
	case matchPort:
		if d.proto != protoTCP && d.proto != protoUDP {
			return nil, fmt.Errorf("a port without tcp or udp: %w", ErrUnsupported)
		}
		return one("-m", protoName(d.proto), "--dport", fmt.Sprint(m.port))
	case matchICMP:
		// ICMPv6 over IPv4, or the reverse, is no message of either: nothing
		// asks for its type.
		switch d.proto {
		case protoICMP:
			return only(ipv4, "-m", "icmp", "--icmp-type", fmt.Sprint(m.typ))
		case protoICMPv6:
			return only(ipv6, "-m", "icmp6", "--icmpv6-type", fmt.Sprint(m.typ))
		}
		return nil, fmt.Errorf("a type without icmp: %w", ErrUnsupported)
	case matchHopLimit:
		return only(ipv6, "-m", "hl", "--hl-eq", "255")
	case matchUID:
		if !m.not {
			return one("-m", "owner", "--uid-owner", fmt.Sprint(m.uid))
		}
		// Negated, the match takes packets that no process sent as well.
		return r.owned(d, "-m", "owner", "!", "--uid-owner", fmt.Sprint(m.uid)), nil
	case matchGID:
		if !m.not {
			return one("-m", "owner", "--gid-owner", fmt.Sprint(m.gid))
		}
		return r.owned(d, "-m", "owner", "!", "--gid-owner", fmt.Sprint(m.gid)), nil
	case matchOwned:
		return r.owned(d), nil
	case matchHeld:
		return r.held(d), nil
	case matchAnswer:
		return only(familyOf(m.to.Addr()), "-m", "conntrack", "--ctdir", "REPLY",
			"--ctorigdst", m.to.Addr().String(), "--ctorigdstport", fmt.Sprint(m.to.Port()))
	case matchForeign:
		return one("-m", "addrtype", "!", "--src-type", "LOCAL")
	case matchSYN:
		flags := []string{"--tcp-flags", "FIN,SYN,RST,ACK", "SYN"}
		if !slices.Contains(d.words, "--dport") { // which belongs to the same match
			flags = append([]string{"-m", "tcp"}, flags...)
		}
		return one(flags...)
	case matchSrcPort:
		if d.proto != protoTCP && d.proto != protoUDP {
			return nil, fmt.Errorf("a port without tcp or udp: %w", ErrUnsupported)
		}
		return one("-m", protoName(d.proto), "--sport", fmt.Sprint(m.port))
	case matchOpening, matchReset:
		flags := []string{"--tcp-flags", "SYN,ACK", "SYN"}
		if r, ok := m.(matchReset); ok {
			flags = []string{"--tcp-flags", "RST", "RST"}
			if r.not {
				flags = append([]string{"!"}, flags...)
			}
		}
		if !slices.Contains(d.words, "--dport") && !slices.Contains(d.words, "--sport") {
			flags = append([]string{"-m", "tcp"}, flags...)
		}
		return one(flags...)
	case matchRouted:
		return only(ipv6, "-m", "rt")
	case matchState:
		return one("-m", "conntrack", "--ctstate", strings.ToUpper(m.state.String()))
	case matchOriginal:
		return one("-m", "conntrack", "--ctdir", "ORIGINAL")
	case matchReply:
		return one("-m", "conntrack", "--ctdir", "REPLY")
	case matchDNAT:
		return one("-m", "conntrack", "--ctstate", "DNAT")
	case matchSet:
		return r.inSet(d, m)
	case matchQuery:
		return r.asked(d, v)
	case matchCalm: // without identifiers, none is known to be wrong
		return one()
	}
	return nil, fmt.Errorf("no match of iptables for %T: %w", m, ErrUnsupported)
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
func (r *xtRenderer) inSet(d xtDraft, m matchSet) ([]xtDraft, error) {
	s, ok := r.sets[m.set]
	if !ok {
		return nil, fmt.Errorf("no set %q", m.set)
	}
	if s.family != r.family {
		return nil, nil
	}
	var out []xtDraft
	for _, part := range s.ipsets() {
		flags := "dst"
		if m.from {
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
func (r *xtRenderer) asked(d xtDraft, v verdict) ([]xtDraft, error) {
	switch v.(type) {
	case accept:
		d = d.with("-m", "limit", "--limit", fmt.Sprintf("%d/sec", askedRate), "--limit-burst", fmt.Sprint(askedBurst))
	case leave:
	default: // only to let pass less is to be as closed
		return nil, fmt.Errorf("no match of iptables for the identifiers of questions: %w", ErrUnsupported)
	}
	if r.family != ipv4 {
		return nil, nil
	}
	return []xtDraft{d.with("-m", "recent", "--rcheck", "--seconds", fmt.Sprint(int(askedLife.Seconds())),
		"--name", xtAsked, "--mask", "0.0.0.0", "--rdest")}, nil
}

// verdict returns the end of a rule.
func (r *xtRenderer) verdict(d xtDraft, v verdict) ([]string, error) {
	switch v := v.(type) {
	case accept:
		return []string{"-j", "ACCEPT"}, nil
	case drop:
		return []string{"-j", "DROP"}, nil
	case leave:
		return []string{"-j", "RETURN"}, nil
	case jump:
		return []string{"-j", xtPrefix + v.chain}, nil
	case count: // each rule counts
		return nil, nil
	case reset:
		if d.proto != protoTCP {
			return nil, fmt.Errorf("a reset without tcp: %w", ErrUnsupported)
		}
		return []string{"-j", "REJECT", "--reject-with", "tcp-reset"}, nil
	case prohibit:
		if r.family == ipv6 {
			return []string{"-j", "REJECT", "--reject-with", "icmp6-adm-prohibited"}, nil
		}
		return []string{"-j", "REJECT", "--reject-with", "icmp-admin-prohibited"}, nil
	case noPort:
		if r.family == ipv6 {
			return []string{"-j", "REJECT", "--reject-with", "icmp6-port-unreachable"}, nil
		}
		return []string{"-j", "REJECT", "--reject-with", "icmp-port-unreachable"}, nil
	case redirect:
		if d.proto != protoTCP && d.proto != protoUDP {
			return nil, fmt.Errorf("a redirection without tcp or udp: %w", ErrUnsupported)
		}
		return []string{"-j", "REDIRECT", "--to-ports", fmt.Sprint(v.port)}, nil
	case remember:
		if r.family != ipv4 {
			return nil, fmt.Errorf("no list of questions over IPv6: %w", ErrUnsupported)
		}
		return []string{"-m", "recent", "--set", "--name", xtAsked, "--mask", "0.0.0.0", "--rdest"}, nil
	case zone:
		return []string{"-j", "CT", "--zone-orig", fmt.Sprint(v.id)}, nil
	case keep: // and the next rule accepts, see rule
		return []string{"-j", "SET", "--add-set", partName(v.set, ""), "src,src", "--exist", "--timeout", fmt.Sprint(int(liveFor.Seconds()))}, nil
	case log:
		return r.log(d, v), nil
	}
	return nil, fmt.Errorf("no target of iptables for %T: %w", v, ErrUnsupported)
}

// log limits per destination first, so that one that is flooded doesn't hide the
// others. A table that is full drops the packet without an answer.
func (r *xtRenderer) log(d xtDraft, v log) []string {
	mode, kind := "dstip,dstport", "o"
	switch {
	case !v.ports:
		mode = "dstip"
	case d.proto == protoTCP:
		kind = "t"
	case d.proto == protoUDP:
		kind = "u"
	}
	return []string{
		"-m", "hashlimit", "--hashlimit-upto", fmt.Sprintf("%d/sec", dropRate), "--hashlimit-burst", fmt.Sprint(dropBurst),
		"--hashlimit-mode", mode, "--hashlimit-name", fmt.Sprintf("%s%d%s", xtPrefix, r.family, kind),
		"--hashlimit-htable-max", fmt.Sprint(maxMeter), "--hashlimit-htable-expire", fmt.Sprint(meterLife.Milliseconds()),
		"-m", "limit", "--limit", fmt.Sprintf("%d/sec", totalRate), "--limit-burst", fmt.Sprint(totalBurst),
		"-j", "NFLOG", "--nflog-group", fmt.Sprint(v.group), "--nflog-prefix", v.text, "--nflog-size", fmt.Sprint(snapLen),
	}
}
