package policy

import (
	"errors"
	"net/netip"
	"strings"
)

// ParseUpstream reads a DNS server: ADDRESS[:PORT], or tls://ADDRESS[:PORT]#NAME
// for DNS over TLS with the certificate's name. The port defaults to 53, or 853.
func ParseUpstream(s string) (server netip.AddrPort, tlsName string, err error) {
	rest, tls := strings.CutPrefix(s, "tls://")
	port := uint16(53)
	if tls {
		port = 853
		var name string
		rest, name, _ = strings.Cut(rest, "#")
		canon, problem := canonical(name)
		if problem != "" {
			return netip.AddrPort{}, "", errors.New("a server over TLS needs the name of its certificate, as in tls://192.0.2.1#dns.example")
		}
		tlsName = canon
	}
	server, err = netip.ParseAddrPort(rest)
	if err != nil {
		a, aerr := netip.ParseAddr(strings.Trim(rest, "[]"))
		if aerr != nil {
			return netip.AddrPort{}, "", errors.New("a DNS server is given by its address, as in 192.0.2.1 or 192.0.2.1:53")
		}
		server = netip.AddrPortFrom(a, port)
	}
	a := server.Addr().Unmap()
	if a.IsMulticast() || a.IsUnspecified() || a.Zone() != "" || server.Port() == 0 {
		return netip.AddrPort{}, "", errors.New("not the address of a DNS server")
	}
	return netip.AddrPortFrom(a, server.Port()), tlsName, nil
}
