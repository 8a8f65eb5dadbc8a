package firewall

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Plan is a set of rules, computed by NewPlan. It is immutable; the zero Plan
// can't be applied. Two plans with the same String are the same.
type Plan struct {
	sets      []set
	chains    []chain
	dropGroup uint16
	reduced   bool
	guard     uint32 // of a reduced plan: whose connections are all there are
}

// tableName is the only name that this package claims in the kernel.
const tableName = "agent-init"

// set is a named set of address, protocol and port; of kind asked, of 16-bit
// identifiers.
type set struct {
	name   string
	family family
	kind   setKind
	boxes  []box     // of static sets
	until  time.Time // of static sets that end; zero: never
}

type setKind uint8

const (
	static  setKind = iota // boxes, and no others
	leased                 // single elements that expire
	living                 // filled by the kernel, with leased elements that have answered
	meter                  // filled by the kernel, to limit what is logged
	asked                  // filled by the kernel, with identifiers of DNS queries
	guessed                // filled by the kernel, with port 53 while none of them may be repeated
)

const (
	maxLeases = 1 << 16 // per family

	maxLive = maxLeases      // per family
	liveFor = 24 * time.Hour // after the last answer

	maxMeter  = 1 << 12 // destinations whose drops are counted apart, per family
	meterLife = 10 * time.Second

	maxAsked  = 1 << 12
	askedLife = 5 * time.Second // as long as engines wait for a server

	guessLife = 30 * time.Second // after an identifier that the guard has not used
)

// chain is a list of rules; one with a hook is where packets enter.
type chain struct {
	name     string
	hook     string // "" if other chains jump here
	nat      bool
	priority int
	closed   bool // drop what no rule decides
	rules    []rule
}

// NewPlan computes the rules for c. The error says what in c makes no sense.
func NewPlan(c Config) (Plan, error) {
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
		if e.Prefix.IsValid() || e.Port == 0 || e.Proto != protoTCP && e.Proto != protoUDP {
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
	for _, p := range never() {
		deny = append(deny, box{prefix: p})
	}
	if c.Reduced {
		return reducedPlan(c, allow, deny)
	}
	p := Plan{dropGroup: c.DropGroup}
	b := builder{Config: c, plan: &p, deny: map[family]string{}, allow: map[family]string{}, granted: map[family][]string{}}
	for _, f := range families() {
		b.addStatic(b.deny, "deny", f, deny)
		if c.Sealed {
			continue
		}
		b.addStatic(b.allow, "allow", f, allow)
		p.sets = append(p.sets, set{name: leaseSet(f), family: f, kind: leased}, set{name: keptSet(f), family: f, kind: living})
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
	p.chains = append(p.chains, b.output(), b.input(),
		chain{name: "forward", hook: "forward", closed: true}, b.postrouting())
	if !c.Sealed {
		p.chains = append(p.chains, b.redirect())
	}
	if c.GuardZone && !c.Sealed {
		p.chains = append(p.chains, b.zone())
	}
	return p, nil
}

// boxesOf returns the boxes of entries. Only with wild may protocol and port
// be 0.
func boxesOf(entries []Entry, wild bool) ([]box, error) {
	var out []box
	for _, e := range entries {
		p, err := plain(e.Prefix)
		if err != nil {
			return nil, err
		}
		switch {
		case e.Proto == 0 && e.Port != 0 && wild:
			out = append(out, box{p, protoTCP, e.Port}, box{p, protoUDP, e.Port})
		case wild && e.Port == 0, e.Port != 0 && (e.Proto == protoTCP || e.Proto == protoUDP):
			out = append(out, box{p, e.Proto, e.Port})
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

// askedSet holds the identifiers of the guard's queries to the engine's DNS.
const askedSet = "asked"

// guessedSet holds port 53 after somebody used another identifier.
const guessedSet = "guessed"

func leaseSet(f family) string { return fmt.Sprintf("lease%d", f) }
func keptSet(f family) string  { return fmt.Sprintf("live%d", f) }
func meterSet(f family) string { return fmt.Sprintf("drops%d", f) }

// String returns the plan as text, in a language close to that of nft(8).
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", tableName)
	for _, s := range p.sets {
		typ := fmt.Sprintf("ipv%d_addr . inet_proto . inet_service", s.family)
		if s.kind == asked || s.kind == guessed {
			typ = "integer, 16 bits"
		}
		fmt.Fprintf(&b, "\tset %s { # %s\n", s.name, typ)
		switch s.kind {
		case static:
			if !s.until.IsZero() {
				fmt.Fprintf(&b, "\t\tflags timeout; until %s\n", s.until.UTC().Format(time.RFC3339Nano))
			}
			for _, x := range s.boxes {
				fmt.Fprintf(&b, "\t\t%s\n", x)
			}
		case leased:
			fmt.Fprintf(&b, "\t\tflags timeout; size %d\n", maxLeases)
		case living:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size %d\n", liveFor, maxLive)
		case meter:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size %d\n", meterLife, maxMeter)
		case asked:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size %d\n", askedLife, maxAsked)
		case guessed:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size 1\n", guessLife)
		}
		b.WriteString("\t}\n")
	}
	for _, c := range p.chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.name)
		if c.hook != "" {
			typ, policy := "filter", "accept"
			if c.nat {
				typ = "nat"
			}
			if c.closed {
				policy = "drop"
			}
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy %s;\n", typ, c.hook, c.priority, policy)
		}
		for _, r := range c.rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// hashed returns a name for a set of boxes that other boxes don't have, so
// that one can be filled while rules still use another.
func hashed(name string, f family, boxes []box, more ...any) string {
	h := sha256.New()
	fmt.Fprint(h, more...)
	for _, x := range boxes {
		fmt.Fprintln(h, x)
	}
	return fmt.Sprintf("%s%d-%s", name, f, hex.EncodeToString(h.Sum(nil)[:8]))
}
