package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// vet checks a parsed rule for what must not be in a policy (a fault), for what
// is probably not meant (a warning), and for what has no effect (drop).
func vet(r *Rule) (f *fault, warning string, drop bool) {
	if r.Deny {
		return nil, "", false // denying too much is safe
	}
	if r.Required {
		switch {
		case r.Wildcard:
			return &fault{text: r.Target(), message: "a wildcard can't be required: name what the self-test must reach"}, "", false
		case r.Name == "" && !r.Prefix.IsSingleIP():
			return &fault{text: r.Target(), message: "a block can't be required: name the address that the self-test must reach"}, "", false
		case len(r.Ports) == 1 && r.Ports[0].Proto == UDP:
			return &fault{text: r.Target(), message: "only TCP can be required: nothing has to answer over UDP"}, "", false
		}
	}
	if r.Connect && r.Wildcard {
		return &fault{text: r.Target(), message: "a wildcard can't be a proxy: name the proxy"}, "", false
	}
	switch {
	case r.Wildcard:
		f, warning = vetWildcard(r.Name)
	case r.Name == "":
		f, warning, drop = vetPrefix(r.Prefix)
		if f == nil && warning == "" && r.Preset == "" {
			warning = vetAddress(r)
		}
	}
	return f, warning, drop
}

// vetAddress warns about a rule that is probably wider than was meant.
func vetAddress(r *Rule) string {
	least := 16
	if r.Prefix.Addr().Is6() {
		least = 32
	}
	class, _ := classOfPrefix(r.Prefix)
	switch {
	case r.Prefix.Bits() < least && class == Public:
		return "a block as wide as this belongs to many, and no name is checked there: name smaller blocks, or names"
	case endsInPort(r):
		host, port := cutLast(r.Prefix.Addr().String())
		return fmt.Sprintf("this is an address by itself, on ports 443 and 80: for a port write [%s]:%s", host, port)
	}
	return ""
}

// usualPorts are those that a last group which reads like one was meant for.
var usualPorts = []string{"22", "53", "80", "443", "853", "993", "3000", "3128", "3306", "5000", "5432", "6379", "8000", "8080", "8443", "9000"}

// endsInPort says whether r is an IPv6 address that names no port, and looks as if it did.
func endsInPort(r *Rule) bool {
	if !r.Prefix.IsSingleIP() || strings.Contains(r.Text, "[") || len(r.Ports) == 1 {
		return false
	}
	word, _ := field(r.Text)
	host, port := cutLast(word)
	return slices.Contains(usualPorts, port) && strings.Contains(host, "::") && !strings.HasSuffix(host, ":")
}

// cutLast cuts s around its last colon.
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, ':')
	return s[:max(i, 0)], s[i+1:]
}

// webPort is where HTTP can be read.
var webPort = Port{TCP, 80}

// siteTLDs are top-level domains that the public DNS will never have
// (RFC 6761, RFC 6762 appendix G, ICANN's reservations).
var siteTLDs = [...]string{"corp", "home", "internal", "intranet", "lan", "local", "private", "test"}

func vetWildcard(name string) (f *fault, warning string) {
	covers := &fault{text: "*." + name, message: "the wildcard covers a public suffix, under which anyone can register: name the domain"}
	suffix, icann := publicsuffix.PublicSuffix(name)
	if suffix == name {
		switch {
		case icann:
			return covers, ""
		case slices.Contains(siteTLDs[:], name):
			return nil, ""
		case suffix == topLevel(name): // not listed at all
			return covers, ""
		}
		return nil, fmt.Sprintf(anyone, name)
	}
	// Some rules of the list are wildcards themselves: *.kawasaki.jp.
	if below, icann := publicsuffix.PublicSuffix("a." + name); icann && below == "a."+name {
		return covers, ""
	}
	if ofStrangers(name) {
		return nil, fmt.Sprintf(anyone, name)
	}
	return nil, ""
}

// anyone is the warning about a name below which strangers are.
const anyone = "anyone can have a name below %s: list the names that the agent needs"

func topLevel(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '.' {
			return name[i+1:]
		}
	}
	return name
}

func vetPrefix(p netip.Prefix) (f *fault, warning string, drop bool) {
	if p.Bits() == 0 {
		return &fault{text: p.String(), message: "this allows everything: name the blocks that the agent needs"}, "", false
	}
	class, partly := classOfPrefix(p)
	switch {
	case !p.IsSingleIP() && p.Overlaps(siteNAT64):
		// Where an IPv4 address stands in it is the site's choice, so no rule for
		// packets can leave a part out: metadata services, or what is denied.
		return &fault{text: p.String(), message: "any IPv4 address may be behind this block, denied ones and metadata too: name single addresses"}, "", false
	case class == Never:
		return &fault{text: p.String(), message: "metadata, multicast and reserved addresses can't be allowed"}, "", false
	case class == Loopback:
		return nil, "loopback needs no entry: it is free inside the container, and never the answer to a name", true
	case partly:
		return nil, "the block holds metadata, multicast or reserved addresses: those stay out of reach", false
	}
	return nil, "", false
}

// classOfPrefix returns the class that all of p has, or Public if it has several;
// partly says that some of it, but not all, is Never.
func classOfPrefix(p netip.Prefix) (class Class, partly bool) {
	if p.IsSingleIP() {
		return Classify(p.Addr()), false
	}
	class, partly = scan(p, blocks6)
	if p.Addr().Is4() {
		return scan(p, blocks4)
	}
	for _, w := range wrappers {
		if w.Bits() <= p.Bits() && w.Contains(p.Addr()) {
			b := p.Addr().As16()
			inner := netip.AddrFrom4([4]byte(b[w.Bits()/8:]))
			innerClass, innerPartly := scan(netip.PrefixFrom(inner, min(32, p.Bits()-w.Bits())), blocks4)
			return max(class, innerClass), partly || innerPartly
		}
	}
	return class, partly
}

// scan does for one list of blocks what classOf does for an address.
func scan(p netip.Prefix, list []block) (class Class, partly bool) {
	mixed := false
	for _, b := range list {
		switch {
		case !b.prefix.Overlaps(p):
		case b.prefix.Bits() <= p.Bits(): // all of what is left
			if mixed && b.class == Never {
				return Public, true
			}
			if mixed {
				return Public, partly
			}
			return b.class, partly
		case b.class == Never:
			partly = true
		default:
			mixed = true
		}
	}
	return Public, partly
}
