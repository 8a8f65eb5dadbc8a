package policy

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// fault is what is wrong with an entry, at an offset in its text.
type fault struct {
	at                        int
	text, message, suggestion string
}

// parseEntry reads one entry, without its comment, into r. If the entry is @NAME it returns the name of the preset, and
// of r only Deny is set. It reads what the entry says; what is wise is checked by vet.
func parseEntry(text string, r *Rule) (preset string, f *fault) {
	if f := invisible(text); f != nil {
		return "", f
	}
	target, flags := field(text)
	rest, deny := strings.CutPrefix(target, "!")
	if deny {
		if r.Deny {
			return "", &fault{0, target, "what stands here is denied already: leave out the !", rest}
		}
		r.Deny = true
	}
	at := len(target) - len(rest)
	if f := turned(rest, flags); f != nil {
		f.at += at
		return "", f
	}
	if name, ok := strings.CutPrefix(rest, "@"); ok {
		if flag, _ := field(flags); flag != "" {
			return "", &fault{strings.Index(text, flags), flag, "a preset takes no flags", ""}
		}
		if name == "" {
			return "", &fault{at, target, "the name of the preset is missing", ""}
		}
		return name, nil
	}
	if isPattern(rest) {
		if rest, f = parsePattern(rest); f != nil {
			f.at += at
			return "", f
		}
	}
	if f := parseTarget(rest, r); f != nil {
		f.at += at
		return "", f
	}
	return "", parseFlags(text, len(text)-len(flags), r)
}

// turned finds an entry that begins with its methods, as a request does.
func turned(methods, behind string) *fault {
	host, path := field(behind)
	if !strings.ContainsAny(host, "./") || namesMethods(methods) != nil {
		return nil
	}
	if _, rest, ok := strings.Cut(host, "://"); ok {
		host, path = hostOfURL(host), rest[max(strings.IndexByte(rest+"/", '/'), 0):]
	}
	line := strings.Join(strings.Fields(host+" "+methods+" "+path), " ")
	if _, f := parseEntry(line, &Rule{}); f != nil {
		line = ""
	}
	return &fault{0, methods + " " + behind, "the name stands first, and behind it METHODS /PATH", line}
}

// invisible finds a character that nobody sees, and that a name is compared without (UTS #46 maps such to nothing):
// what is shown would not be what was written. Joiners are left to IDNA, which knows where they belong.
func invisible(text string) *fault {
	const joiners = "\u200c\u200d"
	for i, c := range text {
		if c < 0x80 || strings.ContainsRune(joiners, c) {
			continue
		}
		if unicode.In(c, unicode.Cf, unicode.Cc, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return &fault{i, text, fmt.Sprintf("a character that can't be seen (U+%04X)", c), text[:i] + text[i+utf8.RuneLen(c):]}
		}
	}
	return nil
}

// field cuts the first word off s; the rest begins with a word, or is empty.
func field(s string) (word, rest string) {
	i := 0
	for i < len(s) && s[i] != ' ' && s[i] != '\t' {
		i++
	}
	return s[:i], strings.TrimLeft(s[i:], " \t")
}

// parseTarget reads HOST[:PORT[/PROTO]].
func parseTarget(s string, r *Rule) *fault {
	host, port, hasPort := s, "", false
	switch {
	case s == "":
		return &fault{0, s, "the name is missing", ""}
	case strings.Contains(s, "://"):
		return &fault{0, s, "an entry is a name, not a URL", hostOfURL(s)}
	case s[0] == '[':
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return &fault{0, s, "the ] is missing", ""}
		}
		tail := s[end+1:]
		tail, port, hasPort = strings.Cut(tail, ":")
		host = s[1:end] + tail
		if !strings.Contains(host, ":") || tail != "" && tail[0] != '/' {
			return &fault{0, s, "only an IPv6 address stands in brackets", ""}
		}
	case strings.Count(s, ":") < 2:
		host, port, hasPort = strings.Cut(s, ":")
	}
	if hasPort {
		p, f := parsePort(port)
		if f != nil {
			f.at = len(s) - len(port)
			return f
		}
		r.Ports = []Port{p}
	}
	if looksLikeAddress(host) {
		return parseAddress(host, r)
	}
	if f := notAName(s, host, port); f != nil {
		return f
	}
	return parseName(host, r)
}

func looksLikeAddress(host string) bool {
	if strings.Contains(host, ":") {
		return true
	}
	addr, _, _ := strings.Cut(host, "/")
	return strings.Count(addr, ".") == 3 && addr[0] <= '9' && strings.Trim(addr, "0123456789.") == ""
}

func parseAddress(s string, r *Rule) *fault {
	if strings.Contains(s, "%") {
		return &fault{0, s, "an address here has no zone", s[:strings.IndexByte(s, '%')]}
	}
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil:
			return &fault{0, s, "not a valid address", cmp.Or(aton(s), bracketed(s))}
		case a.Is4In6():
			return &fault{0, s, "an IPv4 address is written as such", a.Unmap().String()}
		}
		r.Prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return &fault{0, s, "not a valid address block", bracketed(s)}
	case p.Addr().Is4In6():
		return &fault{0, s, "an IPv4 block is written as such", ""}
	case p != p.Masked():
		return &fault{0, s, "the address has bits beyond its prefix length", p.Masked().String()}
	}
	r.Prefix = p
	return nil
}

// bracketed returns an IPv6 address or block with a port behind it in the form that is read, or "".
func bracketed(s string) string {
	host, port := cutLast(s)
	a, bits, isBlock := strings.Cut(host, "/")
	if isBlock {
		bits = "/" + bits
	}
	line := "[" + a + "]" + bits + ":" + port
	if a, err := netip.ParseAddr(a); err != nil || a.Is4() || parseTarget(line, &Rule{}) != nil {
		return ""
	}
	return line
}

// notAName finds what people write in place of a name. s is the whole target.
func notAName(s, host, port string) *fault {
	if before, _, ok := strings.Cut(host, "/"); ok {
		switch {
		case strings.HasSuffix(host, "/tcp") || strings.HasSuffix(host, "/udp"):
			return &fault{0, s, "a protocol stands after a port, as in host:53/udp", ""}
		case strings.Trim(before, "0123456789.xabcdefABCDEF") == "":
			return &fault{0, s, "not a valid address block", ""}
		}
		return &fault{0, s, "an entry is a name; which requests pass stands behind it", onPath(before, host[len(before):])}
	}
	if _, after, ok := strings.Cut(host, "@"); ok {
		return &fault{0, s, "an entry is a name, without a user", after}
	}
	if strings.Contains(host, ",") {
		return &fault{0, s, "one entry per line", ""}
	}
	if host == "" || host[0] < '0' || host[0] > '9' {
		return nil
	}
	if a := aton(host); a != "" {
		if port != "" {
			a += ":" + port
		}
		return &fault{0, s, "an address is written as four decimal numbers", a}
	}
	return nil
}

// onPath is the entry for what reads below a path, or "".
func onPath(host, path string) string {
	line := host + " read " + path
	if _, f := parseEntry(line, &Rule{}); f != nil {
		return ""
	}
	return line
}

func parseName(host string, r *Rule) *fault {
	base, wildcard := strings.CutPrefix(host, "*.")
	switch {
	case host == "*":
		return &fault{0, host, "this allows everything: name what the agent needs", ""}
	case strings.HasPrefix(host, "."):
		return &fault{0, host, "the name has an empty label", "*" + host}
	case strings.Contains(base, "*"):
		return &fault{0, host, "a * may only be the whole first label", starless(host)}
	}
	name, problem := canonical(base)
	if problem == "" && strings.Contains(name, "xn--") {
		// What nobody could look up is a typing error.
		if a, err := idna.Lookup.ToASCII(name); err != nil || a != name {
			problem = "not a valid internationalised name"
		}
	}
	if problem != "" {
		return &fault{0, host, problem, ""}
	}
	r.Name, r.Wildcard = name, wildcard
	return nil
}

// starless returns the wildcard that was probably meant by one in the wrong place, or "".
func starless(host string) string {
	_, below, _ := strings.Cut(host[strings.LastIndexByte(host, '*'):], ".")
	if !strings.Contains(below, ".") {
		below = strings.Trim(strings.ReplaceAll(host, "*", ""), ".-")
	}
	if name, problem := canonical(below); problem == "" && strings.Contains(name, ".") {
		return "*." + name
	}
	return ""
}

func parsePort(s string) (Port, *fault) {
	number, word, hasProto := strings.Cut(strings.ToLower(s), "/")
	proto, known := map[string]Proto{"tcp": TCP, "udp": UDP}[word]
	n, err := strconv.ParseUint(number, 10, 16)
	switch {
	case hasProto && !known:
		return Port{}, &fault{0, s, "unknown protocol", Nearest(word, []string{"tcp", "udp"})}
	case err != nil || n == 0:
		return Port{}, &fault{0, s, "a port is one number from 1 to 65535", ""}
	}
	return Port{cmp.Or(proto, TCP), uint16(n)}, nil
}

// hostOfURL returns the entry that stands for a URL, or "".
func hostOfURL(s string) string {
	scheme, rest, _ := strings.Cut(s, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	switch strings.ToLower(scheme) {
	case "https", "wss":
		rest = strings.TrimSuffix(rest, ":443")
	case "http", "ws":
		rest = strings.TrimSuffix(rest, ":80")
	}
	var r Rule
	if parseTarget(rest, &r) != nil {
		return ""
	}
	return rest
}

// aton turns the other forms of an IPv4 address that inet_aton(3) reads (127.1, 0x7f000001) into the usual one, or "".
func aton(s string) string {
	parts := strings.Split(strings.TrimSuffix(s, "."), ".")
	if len(parts) > 4 {
		return ""
	}
	var value uint64
	for i, part := range parts {
		base, room := 10, 8 // bits that this number fills: the last one fills what is left
		switch {
		case strings.HasPrefix(part, "0x") || strings.HasPrefix(part, "0X"):
			part, base = part[2:], 16
		case len(part) > 1 && part[0] == '0':
			base = 8
		}
		if i == len(parts)-1 {
			room = 8 * (4 - i)
		}
		n, err := strconv.ParseUint(part, base, room)
		if err != nil {
			return ""
		}
		value = value<<room | n
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(value)))).String()
}

const (
	maxName  = 253 // octets of a name, RFC 1035 without the root
	maxLabel = 63
)

// canonical returns s in the one form in which names are compared: lower case, A-labels, no trailing dot. The common
// case costs no allocation. The problem, if there is one, is for people; then the name is "".
func canonical(s string) (name, problem string) {
	name = strings.TrimSuffix(s, ".")
	for i := range len(name) {
		if c := name[i]; c < utf8.RuneSelf && (c < 'A' || c > 'Z') {
			continue
		}
		if strings.ContainsFunc(name[i:], func(r rune) bool { return r >= utf8.RuneSelf }) {
			a, err := idna.Lookup.ToASCII(name)
			if err != nil {
				return "", "not a valid internationalised name"
			}
			name = strings.TrimSuffix(a, ".")
		}
		name = strings.ToLower(name)
		break
	}
	if problem := checkName(name); problem != "" {
		return "", problem
	}
	return name, ""
}

// checkName finds what is wrong with a lower-case ASCII name. Underscores pass: container networks have them.
func checkName(name string) string {
	switch {
	case name == "":
		return "the name is missing"
	case len(name) > maxName:
		return "the name is longer than 253 characters"
	}
	label := ""
	for rest, more := name, true; more; {
		label, rest, more = strings.Cut(rest, ".")
		for i := range len(label) {
			if c := label[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				r, _ := utf8.DecodeRuneInString(label[i:])
				return fmt.Sprintf("a name can't contain %q", r)
			}
		}
		switch {
		case label == "":
			return "the name has an empty label"
		case len(label) > maxLabel:
			return "a label is longer than 63 characters"
		case label[0] == '-' || label[len(label)-1] == '-':
			return "a label begins or ends with a hyphen"
		}
	}
	if numeric(label) {
		return "a name can't end in a number: it would be read as an address"
	}
	return ""
}

// numeric says whether clients read a name with this last label as an IPv4 address (URL standard, "ends in a number").
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	for i := range len(label) {
		if label[i] < '0' || label[i] > '9' {
			return false
		}
	}
	return true
}
