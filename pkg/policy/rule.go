package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// Proto is a transport protocol by its IP protocol number.
type Proto uint8

// The protocols that an entry can name.
const (
	TCP Proto = 6
	UDP Proto = 17
)

// String returns "tcp" or "udp".
func (p Proto) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return "proto-" + strconv.Itoa(int(p))
}

// Port is a port of one protocol. The zero Port stands for every port of every protocol where that is said.
type Port struct {
	Proto  Proto
	Number uint16
}

// String returns for example "443/tcp".
func (p Port) String() string {
	return strconv.Itoa(int(p.Number)) + "/" + p.Proto.String()
}

// MarshalText writes a Port as String does.
func (p Port) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Source is a place in a policy file. Line and Col count from 1, Col in bytes; 0 means unknown or the whole file.
type Source struct {
	File string `json:"file"` // as named in the Bundle
	Line int    `json:"line"`
	Col  int    `json:"col,omitempty"`
}

// String returns "file:line", which is how rules are cited.
func (s Source) String() string {
	if s.Line == 0 {
		return s.File
	}
	return s.File + ":" + strconv.Itoa(s.Line)
}

// Rule is one entry of the policy. Rules are shared and must not be modified.
type Rule struct {
	Source Source
	Text   string // the entry as written, without its comment
	Preset string // the preset that the rule came from, "" if none

	Name    string         // lower case, A-labels, no trailing dot, no "*."; "" if the rule is about addresses
	Prefix  netip.Prefix   // the block of a rule about addresses, else invalid
	Ports   []Port         // nil, in deny rules only: every port and protocol
	Request *route.Request // which requests the rule is about; nil: it is about connections

	// What takes one byte stands side by side: there may be tens of thousands of rules.

	Deny     bool
	Wildcard bool // Name stands for itself and every name below it
	Flags
	routes bool // it is for the host of a route, which is not bound by what is denied to the agent
}

// Inspects says whether the broker looks into what the rule is about.
func (r *Rule) Inspects() bool { return r.Request != nil || r.Observe }

// Target returns the name, wildcard or address block of the rule in the form in which it is written in a policy.
func (r *Rule) Target() string {
	switch {
	case r.Name == "" && r.Prefix.IsSingleIP():
		return r.Prefix.Addr().String()
	case r.Name == "" && r.Prefix.Addr().Is6():
		return "[" + r.Prefix.Addr().String() + "]/" + strconv.Itoa(r.Prefix.Bits())
	case r.Name == "":
		return r.Prefix.String()
	case r.Wildcard:
		return "*." + r.Name
	}
	return r.Name
}

// String returns the rule as a line that means the same in a policy file.
func (r *Rule) String() string {
	var b strings.Builder
	if r.Deny {
		b.WriteByte('!')
	}
	target := r.Target()
	if len(r.Ports) == 1 && (r.Deny || !slices.Equal(r.Ports, r.usualPorts())) {
		if r.Name == "" && r.Prefix.Addr().Is6() && target[0] != '[' {
			target = "[" + target + "]"
		}
		target += ":" + strconv.Itoa(int(r.Ports[0].Number))
		if r.Ports[0].Proto == UDP {
			target += "/udp"
		}
	}
	b.WriteString(target)
	if r.Request != nil {
		b.WriteString(" " + r.Request.String())
	}
	for _, f := range flags {
		if *f.of(&r.Flags) {
			b.WriteString(" " + f.word)
		}
	}
	return b.String()
}

// The ports of the web, whose connections the name gate looks into.
var (
	HTTPS = Port{TCP, 443}
	HTTP  = Port{TCP, 80}

	webPorts   = []Port{HTTPS, HTTP}
	httpsPorts = []Port{HTTPS}
	httpPorts  = []Port{HTTP}
)

// usualPorts are those of an entry that names none, and go without saying.
func (r *Rule) usualPorts() []Port {
	switch {
	case r.HTTP:
		return httpPorts
	case r.TLS || r.Inspects():
		return httpsPorts
	}
	return webPorts
}
