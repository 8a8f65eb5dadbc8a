package policy

import (
	"errors"
	"net/netip"
	"strings"
)

// Upstream is a DNS server of dns.upstream.
type Upstream struct {
	Addr    netip.AddrPort
	TLSName string // over TLS, with a certificate of this name; empty: without
	Local   bool   // it may be an address of the container's own, where the agent could answer in its place
}

// String returns u as ParseUpstream reads it.
func (u Upstream) String() string {
	s := u.Addr.String()
	if u.TLSName != "" {
		s = "tls://" + s + "#" + u.TLSName
	}
	if u.Local {
		s += " local"
	}
	return s
}

// EngineDNS is where container engines put a DNS server into a container's network.
func EngineDNS() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 11}) }

// ParseUpstream reads a DNS server: ADDRESS[:PORT], or tls://ADDRESS[:PORT]#NAME for DNS over TLS with the
// certificate's name. The port defaults to 53, or 853. Behind it may stand the word local.
func ParseUpstream(s string) (Upstream, error) {
	rest, word, _ := strings.Cut(s, " ")
	word = strings.TrimSpace(word)
	u := Upstream{Local: word == "local"}
	rest, tls := strings.CutPrefix(rest, "tls://")
	port := uint16(53)
	if tls {
		port = 853
		rest, u.TLSName, _ = strings.Cut(rest, "#")
		u.TLSName, _ = canonical(u.TLSName)
	}
	server, err := netip.ParseAddrPort(rest)
	if err != nil {
		var a netip.Addr
		a, err = netip.ParseAddr(strings.Trim(rest, "[]"))
		server = netip.AddrPortFrom(a, port)
	}
	u.Addr = netip.AddrPortFrom(server.Addr().Unmap(), server.Port())
	switch a := u.Addr.Addr(); {
	case word != "" && !u.Local:
		err = errors.New("behind a DNS server only the word local may stand, as in `127.0.0.1:5353 local`")
	case tls && u.TLSName == "":
		err = errors.New("a server over TLS needs the name of its certificate, as in tls://192.0.2.1#dns.example")
	case err != nil:
		err = errors.New("a DNS server is given by its address, as in 192.0.2.1 or 192.0.2.1:53")
	case a.IsMulticast() || a.IsUnspecified() || a.Zone() != "" || server.Port() == 0:
		err = errors.New("not the address of a DNS server")
	case a.IsLoopback() && a != EngineDNS() && !u.Local:
		err = errors.New("this is the container itself, where the agent can listen too: if your own server listens there as another user, write the word local behind it")
	}
	if err != nil {
		return Upstream{}, err
	}
	return u, nil
}
