package policy

import "net/netip"

// Class says how far an address may be trusted to be a place on the Internet.
// Classes are ordered: the greater one is the more restricted.
type Class uint8

const (
	// Public addresses may be the answer to any allowed name.
	Public Class = iota
	// Private addresses (RFC 1918, unique local, shared, link-local IPv6,
	// benchmarking) are reached only by an entry that names the address, or
	// that says private.
	Private
	// Loopback addresses are never the answer to a name.
	Loopback
	// Never addresses are out of reach, whatever the policy says: metadata
	// services, multicast, broadcast, unspecified, and reserved blocks.
	Never
)

// String returns the class in lower case.
func (c Class) String() string {
	switch c {
	case Public:
		return "public"
	case Private:
		return "private"
	case Loopback:
		return "loopback"
	}
	return "never"
}

// Classify returns the class of a. IPv4 addresses wrapped in IPv6 (mapped,
// compatible, translated, NAT64, 6to4, Teredo) have the class of what is inside.
// An invalid address is Never.
func Classify(a netip.Addr) Class {
	if !a.IsValid() {
		return Never
	}
	a = a.WithZone("").Unmap()
	if a.Is4() {
		return classOf(a, blocks4)
	}
	class := classOf(a, blocks6)
	for _, inner := range embedded(a) {
		class = max(class, classOf(inner, blocks4))
	}
	return class
}

// NeverPrefixes returns the blocks of class Never for which no packet needs an
// exception: everything in them can be dropped without a look at the policy.
// Multicast is left out, because IPv6 cannot do without it on the link.
func NeverPrefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, list := range [][]block{blocks4, blocks6} {
		for _, b := range list {
			if b.class == Never && !b.prefix.Addr().IsMulticast() && b.prefix.Bits() > 3 {
				out = append(out, b.prefix)
			}
		}
	}
	return out
}

type block struct {
	prefix netip.Prefix
	class  Class
}

// classOf returns the class of the first block that holds a: the more special
// blocks stand first.
func classOf(a netip.Addr, list []block) Class {
	for _, b := range list {
		if b.prefix.Contains(a) {
			return b.class
		}
	}
	return Public
}

// The blocks follow the IANA special-purpose address registries. Documentation
// blocks count as public: nothing is routed there, and examples use them.
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
		{netip.MustParsePrefix("2001::/32"), Public},    // Teredo: by what is inside
		{netip.MustParsePrefix("2001:2::/48"), Private}, // RFC 5180
		{netip.MustParsePrefix("2001:10::/28"), Never},  // ORCHID
		{netip.MustParsePrefix("2001:20::/28"), Never},  // ORCHIDv2
		{netip.MustParsePrefix("2000::/3"), Public},
		{netip.MustParsePrefix("64:ff9b::/96"), Public},    // NAT64: by what is inside
		{netip.MustParsePrefix("64:ff9b:1::/48"), Private}, // NAT64 of the site, RFC 8215
		{netip.MustParsePrefix("::/96"), Public},           // compatible: by what is inside
		{netip.MustParsePrefix("::ffff:0:0:0/96"), Public}, // translated: by what is inside
		{netip.MustParsePrefix("::/0"), Never},             // not assigned to anything
	}
)

// embedded returns the IPv4 addresses that a packet to the IPv6 address a may
// end up at.
func embedded(a netip.Addr) []netip.Addr {
	b := a.As16()
	at := func(i, j, k, l int) netip.Addr { return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]}) }
	last := at(12, 13, 14, 15)
	head := func(p ...byte) bool { return string(b[:len(p)]) == string(p) }
	var zero [12]byte
	switch {
	case a == netip.IPv6Unspecified() || a == netip.IPv6Loopback():
		return nil
	case head(zero[:]...), // compatible, RFC 4291
		head(0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0),    // translated, RFC 2765
		head(0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0): // NAT64, RFC 6052
		return []netip.Addr{last}
	case head(0, 0x64, 0xff, 0x9b, 0, 1):
		// The site chooses the length of the prefix, so the address may stand in
		// any of four places (RFC 6052, 2.2). The places that are not used read
		// as 0.x.x.x, which says nothing.
		var out []netip.Addr
		for _, c := range []netip.Addr{at(6, 7, 9, 10), at(7, 9, 10, 11), at(9, 10, 11, 12), last} {
			if c.As4()[0] != 0 {
				out = append(out, c)
			}
		}
		return out
	case head(0x20, 0x02): // 6to4, RFC 3056
		return []netip.Addr{at(2, 3, 4, 5)}
	case head(0x20, 0x01, 0, 0): // Teredo, RFC 4380: server, and client inverted
		return []netip.Addr{at(4, 5, 6, 7), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	}
	return nil
}
