package xtables

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// How many questions root may send a second after one of the guard's: see asked.
const askedRate, askedBurst = 50, 100

// protocols are those that iptables knows by a name without /etc/protocols.
var protocols = map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "ipv6-icmp"}

// words are what iptables is told of each field: with the value in the place of %v, and in
// that of ~ the mark of a match that is negated. Of a family, if one is named.
var words = map[string]struct {
	family plan.Family
	text   string
}{
	"meta skuid":                    {0, "-m owner ~ --uid-owner %v"},
	"meta skgid":                    {0, "-m owner ~ --gid-owner %v"},
	"iif":                           {0, "-i %v"},
	"oif":                           {0, "~ -o %v"},
	"ip saddr":                      {plan.IPv4, "-s %v"},
	"ip daddr":                      {plan.IPv4, "-d %v"},
	"ip6 saddr":                     {plan.IPv6, "-s %v"},
	"ip6 daddr":                     {plan.IPv6, "-d %v"},
	"ip6 hoplimit":                  {plan.IPv6, "-m hl --hl-eq %v"},
	"exthdr rt":                     {plan.IPv6, "-m rt"},
	"fib saddr type":                {0, "-m addrtype ~ --src-type %v"},
	"ct state":                      {0, "-m conntrack --ctstate %v"},
	"ct status":                     {0, "-m conntrack --ctstate %v"},
	"ct mark":                       {0, "-m connmark ~ --mark %v"},
	"ct direction":                  {0, "-m conntrack --ctdir %v"},
	"tcp flags & (fin|syn|rst|ack)": {0, "~ --tcp-flags FIN,SYN,RST,ACK %v"},
	"tcp flags & (syn|ack)":         {0, "~ --tcp-flags SYN,ACK %v"},
	"tcp flags & rst":               {0, "~ --tcp-flags RST %v"},
	"th sport":                      {0, "--sport %v"},
	"th dport":                      {0, "--dport %v"},
	"icmp type of icmp":             {plan.IPv4, "-m icmp --icmp-type %v"},
	"icmp type of ipv6-icmp":        {plan.IPv6, "-m icmp6 --icmpv6-type %v"},
}

// match adds m to d. It returns no draft if no packet of the family matches, and several if any of them has to.
func (r *xtRenderer) match(d xtDraft, m plan.Match, v plan.Verdict) ([]xtDraft, error) {
	if m.Set != "" {
		return r.matchSet(d, m, v)
	}
	key := m.Field
	switch value := m.Value.(type) {
	case plan.Family:
		return only(value == r.family, d), nil
	case netip.AddrPort:
		return only(plan.FamilyOf(value.Addr()) == r.family, d.with("-m", "conntrack", "--ctdir", "REPLY",
			"--ctorigdst", value.Addr().String(), "--ctorigdstport", fmt.Sprint(value.Port()))), nil
	case uint8:
		switch {
		case key == "meta l4proto" && m.Not:
			d.notProtos = append(slices.Clone(d.notProtos), value)
			return []xtDraft{d}, nil
		case key == "meta l4proto":
			return d.of(value), nil
		case key == "icmp type": // the other protocol's over a family is no message of either: nothing asks for its type
			key += " of " + protocols[d.proto]
		}
	}
	switch {
	case key == "meta skuid" && m.Value == "exists":
		return r.held(d), nil
	case key == "meta skuid" && m.Value == ">= 0":
		return r.owned(d), nil
	case key == "th sport", key == "th dport":
		if d.proto != unix.IPPROTO_TCP && d.proto != unix.IPPROTO_UDP {
			return nil, fmt.Errorf("a port without tcp or udp: %w", nfnetlink.ErrUnsupported)
		}
		d = d.with("-m", protocols[d.proto])
	}
	row, ok := words[key]
	if !ok {
		return nil, fmt.Errorf("no match of iptables for %s: %w", m, nfnetlink.ErrUnsupported)
	}
	not := map[bool]string{true: "!"}[m.Not]
	value := fmt.Sprint(m.Value)
	if word, ok := m.Value.(string); ok && word != "lo" {
		value = strings.ToUpper(word)
	}
	if strings.HasPrefix(key, "tcp flags") && !slices.Contains(d.words, "--dport") && !slices.Contains(d.words, "--sport") {
		d = d.with("-m", "tcp") // else they belong to the match on ports
	}
	text := strings.Fields(strings.NewReplacer("~", not, "%v", value).Replace(row.text))
	if strings.HasPrefix(key, "meta sk") && m.Not { // which takes packets that no process sent as well
		return r.owned(d, text...), nil
	}
	return only(row.family == 0 || row.family == r.family, d.with(text...)), nil
}

// only is d, if a packet of the family can match.
func only(can bool, d xtDraft) []xtDraft {
	if can {
		return []xtDraft{d}
	}
	return nil
}

// of asks for a protocol, besides what d asks for.
func (d xtDraft) of(proto uint8) []xtDraft {
	can := d.proto == 0 || d.proto == proto
	d.proto = proto
	return only(can, d)
}

// owned asks that a process sent the packet: that its socket belongs to any uid
// at all. (--socket-exists takes the kernel's own sockets as well.)
func (r *xtRenderer) owned(d xtDraft, more ...string) []xtDraft {
	var out []xtDraft
	for _, u := range r.uids {
		out = append(out, d.with("-m", "owner", "--uid-owner", u.String()).with(more...))
	}
	return out
}

// held asks that a process has the socket open. Where this user namespace has not all uids, that of an engine outside
// of it is none that a rule can name; then the kernel's own sockets, which have no file, count as well (xt_owner.c).
func (r *xtRenderer) held(d xtDraft) []xtDraft {
	if len(r.uids) == 1 && r.uids[0] == (uidRange{0, maxUID}) {
		return r.owned(d)
	}
	return []xtDraft{d.with("-m", "owner", "--socket-exists")}
}

// matchSet asks for any of the ipsets that together are the plan's set.
func (r *xtRenderer) matchSet(d xtDraft, m plan.Match, v plan.Verdict) ([]xtDraft, error) {
	s, err := r.plan.Set(m.Set)
	if err != nil {
		return nil, err
	}
	flags := map[string]string{"daddr . l4proto . dport": "dst", answerer: "src"}[m.Field]
	switch {
	case m.Field == "@th,64,16":
		return r.asked(d, s, v)
	case m.Field == "th dport": // without identifiers, none is known to be wrong
		return []xtDraft{d}, nil
	case flags == "":
		return nil, fmt.Errorf("no match of iptables for %s: %w", m, nfnetlink.ErrUnsupported)
	case s.Family != r.family:
		return nil, nil
	}
	var out []xtDraft
	for _, part := range partsOf(s) {
		from := flags
		if part.typ != hashNet {
			from += "," + flags
		}
		ds := []xtDraft{d}
		if part.proto != 0 {
			ds = d.of(part.proto)
		}
		for _, d := range ds {
			out = append(out, d.with("-m", "set", "--match-set", part.name, from))
		}
	}
	return out, nil
}

// asked is the weaker form of a match that iptables hasn't: it can't remember the identifier of a question, only that
// the guard has asked anything a moment ago. The guard asks the engine over IPv4, so over IPv6 nothing is passed on.
func (r *xtRenderer) asked(d xtDraft, s plan.Set, v plan.Verdict) ([]xtDraft, error) {
	switch v.Do {
	case "accept":
		d = d.with("-m", "limit", "--limit", fmt.Sprintf("%d/sec", askedRate), "--limit-burst", fmt.Sprint(askedBurst))
	case "return":
	default: // only to let pass less is to be as closed
		return nil, fmt.Errorf("no match of iptables for the identifiers of questions: %w", nfnetlink.ErrUnsupported)
	}
	return only(r.family == plan.IPv4, d.with("-m", "recent", "--rcheck", "--seconds", seconds(s.Timeout),
		"--name", xtPrefix+s.Name, "--mask", "0.0.0.0", "--rdest")), nil
}

func seconds(d time.Duration) string { return fmt.Sprint(int(d.Seconds())) }

// verdicts are what iptables is told of each, by family where they differ: with the chain
// or list in the place of %to, the number in that of %n, and the mark in that of %m.
var verdicts = map[string]map[plan.Family]string{
	"accept":                             {0: "-j ACCEPT"},
	"drop":                               {0: "-j DROP"},
	"return":                             {0: "-j RETURN"},
	"counter":                            {0: ""}, // each rule counts
	"jump":                               {0: "-j %to"},
	"redirect":                           {0: "-j REDIRECT --to-ports %n"},
	"ct original zone set":               {0: "-j CT --zone-orig %n"},
	"ct mark set":                        {0: "-j CONNMARK --set-mark %m"},
	"update":                             {0: "-m recent --set --name %to --mask 0.0.0.0 --rdest"},
	"reject with tcp reset":              {0: "-j REJECT --reject-with tcp-reset"},
	"reject with icmpx admin-prohibited": {plan.IPv4: "-j REJECT --reject-with icmp-admin-prohibited", plan.IPv6: "-j REJECT --reject-with icmp6-adm-prohibited"},
	"reject with icmpx port-unreachable": {plan.IPv4: "-j REJECT --reject-with icmp-port-unreachable", plan.IPv6: "-j REJECT --reject-with icmp6-port-unreachable"},
}

func (r *xtRenderer) verdict(d xtDraft, v plan.Verdict) ([]string, error) {
	switch {
	case v.Do == "reject with tcp reset" && d.proto != unix.IPPROTO_TCP:
		return nil, fmt.Errorf("a reset without tcp: %w", nfnetlink.ErrUnsupported)
	case v.Do == "redirect" && d.proto != unix.IPPROTO_TCP && d.proto != unix.IPPROTO_UDP:
		return nil, fmt.Errorf("a redirection without tcp or udp: %w", nfnetlink.ErrUnsupported)
	case v.Do == "update" && v.Text == answerer:
		s, err := r.plan.Set(v.To)
		return r.note(s), err
	case v.Do == "update" && r.family != plan.IPv4:
		return nil, fmt.Errorf("no list of questions over IPv6: %w", nfnetlink.ErrUnsupported)
	}
	if texts, ok := verdicts[v.Do]; ok {
		return strings.Fields(strings.NewReplacer("%to", xtPrefix+v.To, "%n", fmt.Sprint(v.N), "%m", fmt.Sprint(v.M)).Replace(texts[0] + texts[r.family])), nil
	}
	s, err := r.plan.Set(v.To)
	switch {
	case err != nil:
		return nil, err
	case v.Do == "keep": // and the next rule accepts, see rule
		return r.note(s), nil
	case v.Do == "log":
		return r.log(d, v, s), nil
	}
	return nil, fmt.Errorf("no target of iptables for %s: %w", v, nfnetlink.ErrUnsupported)
}

// answerer is the key of a set of what answers, as packets of answers have it.
const answerer = "saddr . l4proto . sport"

// note puts what answers into a set, with its whole time, and goes on.
func (r *xtRenderer) note(s plan.Set) []string {
	return []string{"-j", "SET", "--add-set", partName(s.Name, ""), "src,src", "--exist", "--timeout", seconds(s.Timeout)}
}

// log limits per destination first, so that one that is flooded doesn't hide the
// others. A table that is full drops the packet without an answer.
func (r *xtRenderer) log(d xtDraft, v plan.Verdict, meter plan.Set) []string {
	mode, kind := "dstip,dstport", "o"
	switch {
	case !v.Ports:
		mode = "dstip"
	case d.proto == unix.IPPROTO_TCP:
		kind = "t"
	case d.proto == unix.IPPROTO_UDP:
		kind = "u"
	}
	return strings.Fields(fmt.Sprintf("-m hashlimit --hashlimit-upto %d/sec --hashlimit-burst %d --hashlimit-mode %s --hashlimit-name %s%d%s"+
		" --hashlimit-htable-max %d --hashlimit-htable-expire %d -m limit --limit %d/sec --limit-burst %d"+
		" -j NFLOG --nflog-group %d --nflog-prefix %s --nflog-size %d",
		meter.Each.Rate, meter.Each.Burst, mode, xtPrefix, r.family, kind, meter.Size, meter.Timeout.Milliseconds(),
		v.Total.Rate, v.Total.Burst, v.N, v.Text, plan.SnapLen))
}

type uidRange struct{ first, last uint32 }

func (u uidRange) String() string {
	if u.first == u.last {
		return fmt.Sprint(u.first)
	}
	return fmt.Sprintf("%d-%d", u.first, u.last)
}

// maxUID is the last uid there can be: the one after it stands for none.
const maxUID = 1<<32 - 2

// knownUIDs returns the uids that the user namespace of this process has, which
// is the network namespace's own in a container: rules can name no others.
func knownUIDs() ([]uidRange, error) {
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil, err
	}
	return parseUIDMap(data)
}

// parseUIDMap parses the lines of user_namespaces(7): first inside, first outside, count.
func parseUIDMap(data []byte) ([]uidRange, error) {
	var out []uidRange
	for line := range bytes.Lines(data) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(string(line), &inside, &outside, &count); err != nil || count == 0 || inside+count > 1<<32 {
			return nil, fmt.Errorf("the uid map has the line %q", line)
		}
		out = append(out, uidRange{uint32(inside), uint32(min(inside+count-1, maxUID))})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the user namespace has no uids")
	}
	return out, nil
}
