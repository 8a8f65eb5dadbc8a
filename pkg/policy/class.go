package policy

import "net/netip"

// Class says how far an address may be trusted to be on the Internet; the greater one is the more restricted.
type Class uint8

const (
	Public   Class = iota // may be the answer to any allowed name
	Private               // RFC 1918, unique local, shared and such: only by an entry that names it, or says private
	Loopback              // never the answer to a name
	Never                 // whatever the policy says: metadata services, multicast, broadcast, unspecified, reserved
)

// Classify returns the class of a. IPv4 addresses wrapped in IPv6 (mapped, compatible, translated, NAT64, 6to4) have
// the class of what is inside. An invalid address is Never.
func Classify(a netip.Addr) Class {
	if !a.IsValid() {
		return Never
	}
	class, _ := classOf(single(a.WithZone("").Unmap()))
	return class
}

// classOf returns the class that all of p has, Public if it has several, and partly if some, not all, is Never.
func classOf(p netip.Prefix) (class Class, partly bool) {
	if p.Addr().Is4() {
		return scan(p, blocks4)
	}
	class, partly = scan(p, blocks6)
	for _, inner := range embedded(p) {
		innerClass, innerPartly := scan(inner, blocks4)
		class, partly = max(class, innerClass), partly || innerPartly
	}
	return class, partly
}

// NeverPrefixes returns the blocks to which no packet may ever go, whatever the policy says: those of class Never and,
// wrapped in IPv6, loopback too. Multicast of IPv6 is left out, because the link can't do without it.
func NeverPrefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, b := range blocks6 {
		if b.class == Never && b.prefix.Bits() > 0 && !b.prefix.Addr().IsMulticast() {
			out = append(out, b.prefix)
		}
	}
	for _, b := range blocks4 {
		if b.class == Never {
			out = append(out, b.prefix)
		}
		if b.class >= Loopback {
			for _, w := range wrappers {
				if p := wrap(w, b.prefix); !p.Contains(netip.IPv6Loopback()) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// wrappers are the blocks of IPv6 that hold all of IPv4, right after their prefix.
var wrappers = [...]netip.Prefix{
	netip.MustParsePrefix("::/96"),           // compatible, RFC 4291
	netip.MustParsePrefix("::ffff:0:0:0/96"), // translated, RFC 2765
	netip.MustParsePrefix("64:ff9b::/96"),    // NAT64, RFC 6052
	netip.MustParsePrefix("2002::/16"),       // 6to4, RFC 3056
}

// wrap returns the block of w that holds the IPv4 block p.
func wrap(w, p netip.Prefix) netip.Prefix {
	b, inner := w.Addr().As16(), p.Addr().As4()
	copy(b[w.Bits()/8:], inner[:])
	return netip.PrefixFrom(netip.AddrFrom16(b), w.Bits()+p.Bits())
}

type block struct {
	prefix netip.Prefix
	class  Class
}

// scan is classOf by a list, in which the more special blocks stand first.
func scan(p netip.Prefix, list []block) (class Class, partly bool) {
	mixed := false
	for _, b := range list {
		switch {
		case !b.prefix.Overlaps(p):
		case b.prefix.Bits() <= p.Bits() && mixed: // all of what is left
			return Public, partly || b.class == Never
		case b.prefix.Bits() <= p.Bits():
			return b.class, partly
		case b.class == Never:
			partly = true
		default:
			mixed = true
		}
	}
	return Public, partly
}

// The blocks follow the IANA special-purpose address registries. Documentation's are public: examples use them.
var (
	blocks4 = []block{
		{netip.MustParsePrefix("127.0.0.0/8"), Loopback},
		{netip.MustParsePrefix("10.0.0.0/8"), Private},
		{netip.MustParsePrefix("172.16.0.0/12"), Private},
		{netip.MustParsePrefix("192.168.0.0/16"), Private},
		{netip.MustParsePrefix("169.254.0.0/16"), Never},     // link-local: metadata of most clouds
		{netip.MustParsePrefix("168.63.129.16/32"), Never},   // Azure's wire server
		{netip.MustParsePrefix("100.100.100.200/32"), Never}, // Alibaba Cloud's metadata
		{netip.MustParsePrefix("100.64.0.0/10"), Private},    // RFC 6598
		{netip.MustParsePrefix("0.0.0.0/8"), Never},
		{netip.MustParsePrefix("192.0.0.0/24"), Never},    // RFC 6890; 192.0.0.192 is Oracle Cloud's metadata
		{netip.MustParsePrefix("192.88.99.0/24"), Never},  // RFC 7526
		{netip.MustParsePrefix("198.18.0.0/15"), Private}, // RFC 2544
		{netip.MustParsePrefix("224.0.0.0/4"), Never},
		{netip.MustParsePrefix("240.0.0.0/4"), Never}, // reserved, and broadcast
	}
	blocks6 = []block{
		{netip.MustParsePrefix("::1/128"), Loopback},
		{netip.MustParsePrefix("::/128"), Never},
		{netip.MustParsePrefix("fd00:ec2::254/128"), Never}, // AWS metadata
		{netip.MustParsePrefix("fd00:ec2::23/128"), Never},  // AWS pod identity
		{netip.MustParsePrefix("fd20:ce::254/128"), Never},  // Google Cloud's metadata
		{netip.MustParsePrefix("fc00::/7"), Private},
		{netip.MustParsePrefix("fe80::/10"), Private},
		{netip.MustParsePrefix("fec0::/10"), Private}, // site-local, RFC 3879
		{netip.MustParsePrefix("ff00::/8"), Never},
		{teredo, Never}, // any IPv4 address may be inside
		{netip.MustParsePrefix("2001:2::/48"), Private}, // RFC 5180
		{netip.MustParsePrefix("2001:10::/28"), Never},  // ORCHID
		{netip.MustParsePrefix("2001:20::/28"), Never},  // ORCHIDv2
		{netip.MustParsePrefix("2000::/3"), Public},
		{netip.MustParsePrefix("64:ff9b::/96"), Public},    // NAT64: by what is inside
		{siteNAT64, Private},                               // by what is inside, too
		{netip.MustParsePrefix("::/96"), Public},           // compatible: by what is inside
		{netip.MustParsePrefix("::ffff:0:0:0/96"), Public}, // translated: by what is inside
		{netip.MustParsePrefix("::/0"), Never},             // not assigned to anything
	}
)

// embedded returns the IPv4 blocks that packets to the block p may end up at.
func embedded(p netip.Prefix) []netip.Prefix {
	a := p.Addr()
	if a.Is4() || p == single(netip.IPv6Unspecified()) || p == single(netip.IPv6Loopback()) {
		return nil
	}
	b := a.As16()
	at := func(i, j, k, l int) netip.Addr { return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]}) }
	for _, w := range wrappers {
		if w.Bits() <= p.Bits() && w.Contains(a) {
			i := w.Bits() / 8
			return []netip.Prefix{netip.PrefixFrom(at(i, i+1, i+2, i+3), min(32, p.Bits()-w.Bits()))}
		}
	}
	var out []netip.Prefix
	if siteNAT64.Contains(a) && p.IsSingleIP() {
		// The site chooses the length of the prefix, so the address may stand in any of four places (RFC 6052, 2.2).
		// The places that are not used read as 0.x.x.x, which says nothing.
		for _, c := range []netip.Addr{at(6, 7, 9, 10), at(7, 9, 10, 11), at(9, 10, 11, 12), at(12, 13, 14, 15)} {
			if c.As4()[0] != 0 {
				out = append(out, single(c))
			}
		}
	}
	return out
}

var (
	siteNAT64 = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	teredo    = netip.MustParsePrefix("2001::/32")      // RFC 4380: two IPv4 addresses, one of them inverted
)
