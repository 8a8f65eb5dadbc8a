package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Plan is a set of rules, computed by New. It is immutable; the zero Plan
// can't be applied. Two plans with the same String are the same.
type Plan struct {
	Sets      []Set
	Chains    []Chain
	DropGroup uint16
	Reduced   bool
	Guard     uint32 // of a reduced plan: whose connections are all there are
}

// TableName is the only name that this package claims in the kernel.
const TableName = "agent-init"

// Set is a named set of address, protocol and port; of kind asked, of 16-bit
// identifiers.
type Set struct {
	Name   string
	Family Family
	Kind   SetKind
	Boxes  []Box     // of static sets
	Until  time.Time // of static sets that end; zero: never
}

// SetKind is who fills a set, and with what.
type SetKind uint8

const (
	Static  SetKind = iota // boxes, and no others
	Leased                 // single elements that expire
	Living                 // filled by the kernel, with leased elements that have answered
	Meter                  // filled by the kernel, to limit what is logged
	Asked                  // filled by the kernel, with identifiers of DNS queries
	Guessed                // filled by the kernel, with port 53 while none of them may be repeated
)

const (
	MaxLeases = 1 << 16 // per family

	MaxLive = MaxLeases      // per family
	LiveFor = 24 * time.Hour // after the last answer

	MaxMeter  = 1 << 12 // destinations whose drops are counted apart, per family
	MeterLife = 10 * time.Second

	MaxAsked  = 1 << 12
	AskedLife = 5 * time.Second // as long as engines wait for a server

	GuessLife = 30 * time.Second // after an identifier that the guard has not used
)

// Chain is a list of rules; one with a hook is where packets enter.
type Chain struct {
	Name     string
	Hook     string // "" if other chains jump here
	Nat      bool
	Priority int
	Closed   bool // drop what no rule decides
	Rules    []Rule
}

// New computes the rules for c. The error says what in c makes no sense.
func New(c Config) (Plan, error) {
	if c.Sealed {
		c = Config{Sealed: true, DropGroup: c.DropGroup, Reduced: c.Reduced}
	} else if err := c.checkGuard(); err != nil {
		return Plan{}, err
	}
	if c.Reduced { // the guard ends its connections by itself
		for _, g := range c.Granted {
			c.Allow = append(slices.Clip(c.Allow), g.Entry)
		}
	}
	allow, err := boxesOf(c.Allow, false)
	if err != nil {
		return Plan{}, fmt.Errorf("allow: %w", err)
	}
	deny, err := boxesOf(c.Deny, true)
	if err != nil {
		return Plan{}, fmt.Errorf("deny: %w", err)
	}
	for _, e := range c.Inbound {
		if e.Prefix.IsValid() || e.Port == 0 || e.Proto != ProtoTCP && e.Proto != ProtoUDP {
			return Plan{}, fmt.Errorf("inbound: %v: want tcp or udp, a port, and no address", e)
		}
	}
	for i, u := range c.Upstreams {
		if !u.IsValid() || u.Port() == 0 {
			return Plan{}, fmt.Errorf("upstream %d: %v is no address with a port", i, u)
		}
	}
	if len(c.Here) > 0 && (c.AnyAgent || c.Reduced) {
		return Plan{}, fmt.Errorf("the DNS server %v can't be one of this namespace, where no rule knows the agent", c.Here[0])
	}
	for _, p := range Never() {
		deny = append(deny, Box{Prefix: p})
	}
	if c.Reduced {
		return reducedPlan(c, allow, deny)
	}
	p := Plan{DropGroup: c.DropGroup}
	b := builder{Config: c, plan: &p, deny: map[Family]string{}, allow: map[Family]string{}, granted: map[Family][]string{}}
	for _, f := range Families() {
		b.addStatic(b.deny, "deny", f, deny)
		if c.Sealed {
			continue
		}
		b.addStatic(b.allow, "allow", f, allow)
		p.Sets = append(p.Sets, Set{Name: LeaseSet(f), Family: f, Kind: Leased}, Set{Name: KeptSet(f), Family: f, Kind: Living})
	}
	if !c.Sealed {
		if err := b.addGranted(); err != nil {
			return Plan{}, err
		}
	}
	b.addRefuse()
	if c.Observe && !c.Sealed {
		b.addObserve()
	}
	p.Chains = append(p.Chains, b.output(), b.input(),
		Chain{Name: "forward", Hook: "forward", Closed: true}, b.postrouting())
	if !c.Sealed {
		p.Chains = append(p.Chains, b.redirect())
	}
	if c.GuardZone && !c.Sealed {
		p.Chains = append(p.Chains, b.zone())
	}
	return p, nil
}

// boxesOf returns the boxes of entries. Only with wild may protocol and port
// be 0.
func boxesOf(entries []Entry, wild bool) ([]Box, error) {
	var out []Box
	for _, e := range entries {
		p, err := plain(e.Prefix)
		if err != nil {
			return nil, err
		}
		switch {
		case e.Proto == 0 && e.Port != 0 && wild:
			out = append(out, Box{p, ProtoTCP, e.Port}, Box{p, ProtoUDP, e.Port})
		case wild && e.Port == 0, e.Port != 0 && (e.Proto == ProtoTCP || e.Proto == ProtoUDP):
			out = append(out, Box{p, e.Proto, e.Port})
		default:
			return nil, fmt.Errorf("%v: protocol %d, port %d: want tcp or udp and a port", e.Prefix, e.Proto, e.Port)
		}
	}
	return out, nil
}

// plain returns p masked, and as IPv4 if it is IPv4 written as IPv6.
func plain(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return p, fmt.Errorf("%v is no block of addresses", p)
	}
	if a := p.Addr(); a.Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%v mixes IPv4 and IPv6", p)
		}
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// AskedSet holds the identifiers of the guard's queries to the engine's DNS.
const AskedSet = "asked"

// guessedSet holds port 53 after somebody used another identifier.
const guessedSet = "guessed"

// LeaseSet, KeptSet and MeterSet are the names of the sets of these kinds.
func LeaseSet(f Family) string { return fmt.Sprintf("lease%d", f) }
func KeptSet(f Family) string  { return fmt.Sprintf("live%d", f) }
func MeterSet(f Family) string { return fmt.Sprintf("drops%d", f) }

// String returns the plan as text, in a language close to that of nft(8).
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", TableName)
	for _, s := range p.Sets {
		typ := fmt.Sprintf("ipv%d_addr . inet_proto . inet_service", s.Family)
		if s.Kind == Asked || s.Kind == Guessed {
			typ = "integer, 16 bits"
		}
		fmt.Fprintf(&b, "\tset %s { # %s\n", s.Name, typ)
		switch s.Kind {
		case Static:
			if !s.Until.IsZero() {
				fmt.Fprintf(&b, "\t\tflags timeout; until %s\n", s.Until.UTC().Format(time.RFC3339Nano))
			}
			for _, x := range s.Boxes {
				fmt.Fprintf(&b, "\t\t%s\n", x)
			}
		case Leased:
			fmt.Fprintf(&b, "\t\tflags timeout; size %d\n", MaxLeases)
		case Living:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size %d\n", LiveFor, MaxLive)
		case Meter:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size %d\n", MeterLife, MaxMeter)
		case Asked:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size %d\n", AskedLife, MaxAsked)
		case Guessed:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size 1\n", GuessLife)
		}
		b.WriteString("\t}\n")
	}
	for _, c := range p.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Hook != "" {
			typ, policy := "filter", "accept"
			if c.Nat {
				typ = "nat"
			}
			if c.Closed {
				policy = "drop"
			}
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy %s;\n", typ, c.Hook, c.Priority, policy)
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// hashed returns a name for a set of boxes that other boxes don't have, so
// that one can be filled while rules still use another.
func hashed(name string, f Family, boxes []Box, more ...any) string {
	h := sha256.New()
	fmt.Fprint(h, more...)
	for _, x := range boxes {
		fmt.Fprintln(h, x)
	}
	return fmt.Sprintf("%s%d-%s", name, f, hex.EncodeToString(h.Sum(nil)[:8]))
}
