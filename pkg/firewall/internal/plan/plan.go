// Package plan computes, in pure code, which packets pass: a Plan of sets and chains
// that each backend writes in its own language. Nothing here speaks to the kernel.
package plan

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Plan is documented as firewall.Plan.
type Plan struct {
	Sets      []Set
	Chains    []Chain
	DropGroup uint16
	Reduced   bool
	Guard     uint32 // of a reduced plan: whose connections are all there are
}

// TableName is the only name that this package claims in the kernel.
const TableName = "agent-init"

// Set is a named set of address, protocol and port.
type Set struct {
	Name   string
	Family Family // 0: of 16-bit numbers instead
	For    Holder // of what is leased

	Static bool      // it holds boxes, and nothing else
	Boxes  []Box     // no two of which overlap
	Until  time.Time // when those end; zero: never

	Dynamic bool          // the kernel fills it; else leases do, or boxes
	Timeout time.Duration // of what it fills in
	Size    uint32
	Each    Limit // of what is logged for each element; a set without has nothing to do with logs
}

// Limit lets Burst packets pass at once, and then Rate a second.
type Limit struct{ Rate, Burst uint32 }

// Leases is the set of what is leased to h; its elements expire.
func (f Family) Leases(h Holder) Set {
	return Set{Name: fmt.Sprintf("%slease%d", h.prefix(), f), Family: f, For: h, Size: 1 << 16}
}

// Kept is the set of leased elements that have answered, until a day after the last answer.
func (f Family) Kept(h Holder) Set {
	return Set{Name: fmt.Sprintf("%slive%d", h.prefix(), f), Family: f, For: h, Dynamic: true, Timeout: KeptFor, Size: 1 << 16}
}

// KeptFor is how long that is.
const KeptFor = 24 * time.Hour

// LeaseSets and KeptSets are those of all holders and families. Only some may be there.
func LeaseSets() []Set { return setsOf(false) }
func KeptSets() []Set  { return setsOf(true) }

func setsOf(kept bool) (out []Set) {
	for _, h := range Holders() {
		for _, f := range Families() {
			for _, s := range f.Of(h) {
				if s.Dynamic == kept {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// meter counts the drops of each destination apart.
func meter(f Family) Set {
	return Set{Name: fmt.Sprintf("drops%d", f), Family: f, Dynamic: true, Timeout: 10 * time.Second, Size: 1 << 12, Each: Limit{1, 5}}
}

var (
	// askedSet holds identifiers of the guard's queries to the engine's DNS, as long as engines wait.
	askedSet = Set{Name: "asked", Dynamic: true, Timeout: 5 * time.Second, Size: 1 << 12}

	// guessedSet holds port 53 while no identifier may be repeated, since somebody used one that the guard has not.
	guessedSet = Set{Name: "guessed", Dynamic: true, Timeout: 30 * time.Second, Size: 1}
)

func (p Plan) Set(name string) (Set, error) {
	i := slices.IndexFunc(p.Sets, func(s Set) bool { return s.Name == name })
	if i < 0 {
		return Set{}, fmt.Errorf("no set %q", name)
	}
	return p.Sets[i], nil
}

// Left is how long an element of s has yet; 0 if it doesn't end.
func (s Set) Left() time.Duration {
	if s.Until.IsZero() {
		return 0
	}
	return max(time.Until(s.Until), time.Millisecond)
}

// Ending says whether elements of s may be gone by themselves, or be about to.
func (s Set) Ending() bool { return !s.Until.IsZero() && time.Until(s.Until) < lastMoment }

// lastMoment is by how much the kernel's clock may differ, and what takes its time.
const lastMoment = 2 * time.Second

// Chain is a list of rules; one with a hook is where packets enter.
type Chain struct {
	Name     string
	Hook     string // "" if other chains jump here
	Nat      bool
	Priority int
	Closed   bool // drop what no rule decides
	Rules    []Rule
}

// raw is the priority of what comes before the tracking of connections (NF_IP_PRI_RAW).
const raw = -300

// Raw says whether c does.
func (c Chain) Raw() bool { return c.Priority == raw }

// New computes the rules for c. The error says what in c makes no sense.
func New(c Config) (Plan, error) {
	if c.Sealed { // nothing of what else it says is left
		c = Config{Sealed: true, DropGroup: c.DropGroup, Reduced: c.Reduced}
	} else if err := cmp.Or(c.checkGuard(), c.checkBroker(), c.checkInside()); err != nil {
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
		if e.Prefix.IsValid() || e.Port == 0 || !hasPorts(e.Proto) {
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
	deny = append(deny, never()...)
	if c.Reduced {
		return reducedPlan(c, allow, deny)
	}
	p := Plan{DropGroup: c.DropGroup}
	b := builder{Config: c, plan: &p, deny: map[Family]string{}, allowed: map[Family][]string{}, routed: map[Holder]map[Family][]string{}}
	for _, f := range Families() {
		b.deny[f] = b.static("deny", f, deny)[0] // of either family there is always one: see never
		b.allowed[f] = b.static("allow", f, allow)
		if !c.Sealed {
			for _, h := range []Holder{Agent, Gated, Inspected} {
				p.Sets = append(p.Sets, f.Of(h)...)
			}
		}
	}
	if err := b.addGranted(); err != nil {
		return Plan{}, err
	}
	b.addRefuse()
	if c.Observe {
		b.addObserve()
	}
	for _, s := range b.senders() {
		if err := b.addSender(s); err != nil {
			return Plan{}, err
		}
	}
	p.Chains = append(p.Chains, b.output(), b.input(), b.forward(), b.postrouting())
	b.addGateway()
	if !c.Sealed {
		p.Chains = append(p.Chains, b.onward(), b.leftover(), b.redirect())
	}
	if c.GuardZone {
		p.Chains = append(p.Chains, b.zone())
		for _, s := range b.senders() {
			p.Chains = append(p.Chains, b.senderZone(s)...)
		}
	}
	return p, nil
}

// Probe returns a plan with one of everything that plans are made of, to be tried beside
// another: prefix begins the names of its sets and chains, and nothing may lead to it.
func Probe(prefix string, reduced bool) (Plan, error) {
	a4, a6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1") // any will do: no packet meets it
	c := Config{
		Reduced: reduced, GuardUID: 1, GuardGID: 1, AgentUID: 1, GuardZone: true, DropGroup: 1,
		DNSPort4: 1, DNSPort6: 1, GatePort4: 1, GatePort6: 1, Relayed: []uint16{1}, Inbound: []Entry{{Proto: unix.IPPROTO_TCP, Port: 1}},
		Upstreams: []netip.AddrPort{netip.AddrPortFrom(EngineDNS(), 53), netip.AddrPortFrom(a4, 53), netip.AddrPortFrom(a6, 53)},
	}
	end := time.Now().Add(time.Hour)
	for _, a := range []netip.Addr{a4, a6} {
		e := Entry{single(a), unix.IPPROTO_TCP, 2}
		c.Allow, c.Granted = append(c.Allow, e), append(c.Granted, Grant{e, end})
	}
	p, err := New(c)
	rename := func(name *string) {
		if *name != "" {
			*name = prefix + *name
		}
	}
	for i := range p.Sets {
		rename(&p.Sets[i].Name)
	}
	for i, ch := range p.Chains {
		rename(&p.Chains[i].Name)
		for j, r := range ch.Rules {
			rename(&ch.Rules[j].Verdict.To)
			for k := range r.Matches {
				rename(&r.Matches[k].Set)
			}
		}
	}
	return p, err
}

// boxesOf returns the boxes of entries. Only with wild may protocol and port be 0.
func boxesOf(entries []Entry, wild bool) ([]Box, error) {
	var out []Box
	for _, e := range entries {
		p, err := plain(e.Prefix)
		if err != nil {
			return nil, err
		}
		switch {
		case e.Proto == 0 && e.Port != 0 && wild:
			out = append(out, Box{p, unix.IPPROTO_TCP, e.Port}, Box{p, unix.IPPROTO_UDP, e.Port})
		case wild && e.Port == 0, e.Port != 0 && hasPorts(e.Proto):
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

// String returns the plan as text, in a language close to that of nft(8).
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", TableName)
	for _, s := range p.Sets {
		typ := fmt.Sprintf("%s_addr . inet_proto . inet_service", s.Family)
		if s.Family == 0 {
			typ = "integer, 16 bits"
		}
		fmt.Fprintf(&b, "\tset %s { # %s\n", s.Name, typ)
		switch {
		case s.Dynamic:
			fmt.Fprintf(&b, "\t\tflags dynamic,timeout; timeout %v; size %d\n", s.Timeout, s.Size)
		case !s.Static:
			fmt.Fprintf(&b, "\t\tflags timeout; size %d\n", s.Size)
		case !s.Until.IsZero():
			fmt.Fprintf(&b, "\t\tflags timeout; until %s\n", s.Until.UTC().Format(time.RFC3339Nano))
		}
		for _, x := range s.Boxes {
			fmt.Fprintf(&b, "\t\t%s\n", x)
		}
		b.WriteString("\t}\n")
	}
	for _, c := range p.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Hook != "" {
			typ, policy := map[bool]string{false: "filter", true: "nat"}[c.Nat], map[bool]string{false: "accept", true: "drop"}[c.Closed]
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
func hashed(name string, f Family, boxes []Box, until []int64) string {
	h := sha256.New()
	for _, end := range until {
		fmt.Fprint(h, end)
	}
	for _, x := range boxes {
		fmt.Fprintln(h, x)
	}
	return fmt.Sprintf("%s%d-%x", name, f, h.Sum(nil)[:8])
}

// Diff is how the kernel differs from a plan, in words.
type Diff []string

const maxDiffs = 5

func (d *Diff) Note(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

// Err returns an error that tells the first differences, or nil.
func (d Diff) Err() error {
	if len(d) == 0 {
		return nil
	}
	more := ""
	if n := len(d) - maxDiffs; n > 0 {
		d, more = d[:maxDiffs], fmt.Sprintf("; and %d more", n)
	}
	return errors.New("the kernel's rules are not the plan's: " + strings.Join(d, "; ") + more)
}

// Names notes which of what there should be are gone, and which foreign, and returns the others in order.
func (d *Diff) Names(what string, got, want iter.Seq[string]) (both []string) {
	there, wanted := slices.Collect(got), slices.Collect(want)
	for _, name := range ordered(append(slices.Clip(there), wanted...), strings.Compare) {
		switch {
		case !slices.Contains(there, name):
			d.Note("%s %s is gone", what, name)
		case !slices.Contains(wanted, name):
			d.Note("%s %s is foreign", what, name)
		default:
			both = append(both, name)
		}
	}
	return both
}

// Chains compares the rules of chains, where where says.
func (d *Diff) Chains(where string, got, want map[string][]string) {
	for _, name := range d.Names(where+"chain", maps.Keys(got), maps.Keys(want)) {
		g, w := got[name], want[name]
		if slices.Equal(g, w) {
			continue
		}
		i := 0
		for i < min(len(g), len(w)) && g[i] == w[i] {
			i++
		}
		d.Note("%schain %s has other rules (%d, not %d; first difference at rule %d)", where, name, len(g), len(w), i+1)
	}
}

// Elements notes how many of a static set's elements are missing, and how many too many.
func (d *Diff) Elements(name string, of Set, missing, extra int) {
	if missing > 0 && !of.Ending() || extra > 0 {
		d.Note("set %s lacks %d elements and has %d foreign ones", name, missing, extra)
	}
}
