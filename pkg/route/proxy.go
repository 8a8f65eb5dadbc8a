package route

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
)

// Proxy is the HTTP proxy by which connections go out. The zero value is none: they go straight.
type Proxy struct {
	Host string `json:"host"` // a name, or an address
	Port uint16 `json:"port"`

	Credential string      `json:"credential,omitempty"` // a file
	Scheme     ProxyScheme `json:"auth,omitempty"`       // by which the credential is shown; "" without one

	ByName   bool       `json:"by_name,omitempty"`  // it is asked for names, and not for the addresses that were found for them
	Resolves bool       `json:"resolves,omitempty"` // names are not looked up: it does that alone
	Straight []Straight `json:"straight,omitempty"` // what goes past it
}

// ProxyScheme is how a credential stands in Proxy-Authorization.
type ProxyScheme = string

// The schemes, as policies have them. What a negotiation has come to is one token (RFC 4559), as a bearer's is.
const (
	Basic     ProxyScheme = "basic"
	Bearer    ProxyScheme = "bearer"
	Negotiate ProxyScheme = "negotiate"
)

// Authorization is the value of Proxy-Authorization that shows the credential. Without one, it is "".
func (p *Proxy) Authorization(credential []byte) string {
	switch {
	case len(credential) == 0:
		return ""
	case p.Scheme == Bearer:
		return "Bearer " + string(credential)
	case p.Scheme == Negotiate:
		return "Negotiate " + string(credential)
	}
	return "Basic " + base64.StdEncoding.EncodeToString(credential)
}

// String is where it is, and what it is asked for.
func (p *Proxy) String() string {
	host := p.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	words := "asked for addresses"
	switch {
	case p.Resolves:
		words = "asked for names, which it alone looks up"
	case p.ByName:
		words = "asked for names"
	}
	return fmt.Sprintf("http://%s:%d, %s", host, p.Port, words)
}

// Straight is what goes past the proxy: a name, a wildcard, or a block of addresses.
type Straight struct {
	Name     string       `json:"name,omitempty"`
	Wildcard bool         `json:"wildcard,omitempty"` // names below it as well
	Prefix   netip.Prefix `json:"prefix,omitzero"`
	Port     uint16       `json:"port,omitempty"` // 0: any
}

// covers says whether s is about all of a name, or of a wildcard for it.
func (s *Straight) covers(name string, wildcard bool, port uint16) bool {
	switch {
	case s.Name == "" || s.Port != 0 && s.Port != port:
		return false
	case s.Wildcard:
		return name == s.Name || strings.HasSuffix(name, "."+s.Name)
	}
	return name == s.Name && !wildcard
}

// Passes says whether connections to a name, or to all names of a wildcard, go past p. The name is in lower case.
func (p *Proxy) Passes(name string, wildcard bool, port uint16) bool {
	for i := range p.Straight {
		if p.Straight[i].covers(name, wildcard, port) {
			return true
		}
	}
	return p.Host == ""
}

// PassesBlock is Passes of a block of addresses.
func (p *Proxy) PassesBlock(block netip.Prefix, port uint16) bool {
	for _, s := range p.Straight {
		if s.Prefix.IsValid() && s.Prefix.Bits() <= block.Bits() && s.Prefix.Contains(block.Addr()) && (s.Port == 0 || s.Port == port) {
			return true
		}
	}
	return p.Host == ""
}

// PassesHost is Passes of a host, which may be an address.
func (p *Proxy) PassesHost(host string, port uint16) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return p.PassesBlock(netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), port)
	}
	return p.Passes(strings.ToLower(strings.TrimSuffix(host, ".")), false, port)
}
