package plan

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// The table of all agents of a gateway decides about no destination. It knows who the agents are and where, drops what
// comes from somebody else, tags what is an agent's for its cell, and lets pass what the table of the right agent has
// marked: see cell.go. Its rules are as many for two agents as for two hundred.

// Agents is what the table of all agents is computed from.
type Agents struct {
	Links  []uint32 // the interfaces that agents are behind
	List   []AgentAt
	Onward bool // the forward path is open
	Shared bool // others are behind these interfaces as well, and the way out may be
}

// AgentAt is one of them.
type AgentAt struct {
	Link     uint32
	Networks []netip.Prefix // single addresses, or what is behind the interface
	MAC      [6]byte        // that it sends from; zero: any
	Mark     uint32         // of its cell; 0: nothing of it passes
	UIDs     []uint32       // of its cell's processes: of no other's
}

// Key is what the elements of a set are.
type Key string

// The keys that there are.
const (
	ByAddr   Key = "address"
	ByNumber Key = "number"           // of 32 bits
	ByPlace  Key = "address . number" // likewise
	ByEther  Key = "address . ether"
)

// Span is an element of a set with a Key: the addresses of Prefix, with a number or a hardware address.
type Span struct {
	Prefix netip.Prefix // unset of ByNumber
	Number uint32
	MAC    [6]byte
	To     uint32 // of a map: the mark
}

func (s Span) String() string {
	var key string
	switch {
	case s.MAC != [6]byte{}:
		key = fmt.Sprint(s.Prefix, " . ", hex.EncodeToString(s.MAC[:]))
	case !s.Prefix.IsValid():
		key = fmt.Sprint(s.Number)
	default:
		key = fmt.Sprint(s.Prefix, " . ", s.Number)
	}
	if s.To != 0 {
		key += fmt.Sprintf(" : %#x", s.To)
	}
	return key
}

// Last is the highest address of s.
func (s Span) Last() netip.Addr { return Box{Prefix: s.Prefix}.Last() }

// Strangers is the set of addresses that somebody sent from who is no agent, and Forged of those of agents that somebody
// sent from with another hardware address, or behind another interface.
func (f Family) Strangers() Set { return seen("stranger", f) }
func (f Family) Forged() Set    { return seen("forged", f) }

// SeenFor is how long an address is among them.
const SeenFor = 10 * time.Minute

func seen(name string, f Family) Set {
	return Set{Name: fmt.Sprintf("%s%d", name, f), Family: f, Key: ByAddr, Dynamic: true, Timeout: SeenFor, Size: 256}
}

// NewAgents computes the table of all agents.
func NewAgents(a Agents) (Plan, error) {
	b := builder{plan: &Plan{}, deny: map[Family]string{}, allowed: map[Family][]string{}}
	number := b.numbers("link", a.Links)
	var marks []uint32
	var places, admitted, pins, tags, users, tagged []Span
	var all, pinned []Box
	for _, g := range a.List {
		if g.Link == 0 || !slices.Contains(a.Links, g.Link) || len(g.Networks) == 0 {
			return Plan{}, errors.New("an agent needs an address, and one of the interfaces")
		}
		if g.Mark != 0 {
			if slices.Contains(marks, g.Mark) {
				return Plan{}, fmt.Errorf("two agents have the mark %#x", g.Mark)
			} else if g.Mark&1 != 0 {
				return Plan{}, fmt.Errorf("an agent's mark is even, not %#x", g.Mark)
			}
			marks, tags = append(marks, g.Mark), append(tags, Span{Number: tag(g.Mark)})
			for _, id := range g.UIDs {
				users = append(users, Span{Number: id, To: tag(g.Mark)})
			}
		}
		for _, p := range g.Networks {
			p, err := plain(p)
			if err != nil {
				return Plan{}, err
			}
			if i := slices.IndexFunc(all, func(b Box) bool { return b.Prefix.Overlaps(p) }); i >= 0 {
				return Plan{}, fmt.Errorf("%v and %v are of two agents", all[i].Prefix, p)
			}
			all = append(all, Box{Prefix: p})
			places = append(places, Span{Prefix: p, Number: g.Link})
			if g.Mark != 0 {
				admitted = append(admitted, Span{Prefix: p, Number: g.Mark})
				tagged = append(tagged, Span{Prefix: p, Number: g.Link, To: tag(g.Mark)})
			}
			if g.MAC != [6]byte{} {
				pins, pinned = append(pins, Span{Prefix: p, MAC: g.MAC}), append(pinned, Box{Prefix: p})
			}
		}
	}
	live, known := b.numbers("mark", marks), b.keyed("tag", 0, ByNumber, tags)
	raws := [2]Chain{{Name: "arrivals", Hook: "prerouting", Priority: raw}, {Name: "departures", Hook: "output", Priority: raw}}
	in := Chain{Name: "last-input", Hook: "input", Priority: last, Closed: true}
	out := Chain{Name: "last-output", Hook: "output", Priority: last, Closed: true}
	through := Chain{Name: "last-forward", Hook: "forward", Priority: last, Closed: true}
	to := []Chain{{Name: "first-input", Hook: "input", Priority: -1}, {Name: "first-output", Hook: "output", Priority: mangle}, {Name: "first-forward", Hook: "forward", Priority: -1}}
	hide := Chain{Name: "disguise", Hook: "postrouting", Nat: true, Priority: 100}

	// No mark is anybody's but a cell's: not of who may set one on his socket (SO_MARK of socket(7)).
	raws[0].add(leave, arriving)
	raws[0].add(setMark(0))
	raws[1].add(setMark(0))
	inside := Match{Field: "iif", Set: number}
	src := func(f Family, second string) string { return f.Header() + "saddr . " + second }
	raws[0].add(jump("sources"), inside)
	sources := Chain{Name: "sources"}
	sources.add(drop, ours)
	sources.add(drop, plainHead.not())
	sources.add(drop, of(IPv6), routed)
	for _, f := range Families() {
		place, mark := b.spans("place", f, ByPlace, places), b.spans("admitted", f, ByPlace, admitted)
		stranger, forged := f.Strangers(), f.Forged()
		b.plan.Sets = append(b.plan.Sets, stranger, forged)
		if names := b.static("agents", f, all); names != nil {
			among, mine := names[0], []Match{of(f), {Field: src(f, "iif"), Set: place}}
			raws[0].add(drop, of(f), inside.not(), fromSet(among))
			if pin := b.spans("pin", f, ByEther, pins); pin != "" {
				held := b.static("pinned", f, pinned)[0]
				other := []Match{of(f), ethernet, fromSet(held), {Field: src(f, "ether"), Set: pin, Not: true}}
				sources.add(update(forged.Name, f.Header()+"saddr"), other...)
				sources.add(drop, other...)
				sources.add(drop, of(f), ethernet.not(), fromSet(held)) // where there are no hardware addresses
			}
			if whose := b.spans("whose", f, ByPlace, tagged); whose != "" {
				sources.add(lookUp(whose, src(f, "iif")), of(f))
				to[1].add(lookUp(whose, f.Header()+"daddr . oif"), of(f))
				to[2].add(lookUp(whose, f.Header()+"daddr . oif"), of(f), nobodys)
			}
			sources.add(accept, mine...)
			sources.add(update(forged.Name, f.Header()+"saddr"), of(f), fromSet(among))
			sources.add(drop, of(f), fromSet(among))
			through.add(drop, of(f), fromSet(among), inSet(among)) // from one agent to another
			hide.add(masquerade, of(f), fromSet(among), Match{Field: "oif", Set: number, Not: true}, staying.not())
		}
		if mark != "" {
			in.add(accept, of(f), inside, Match{Field: src(f, "meta mark"), Set: mark})
			through.add(accept, of(f), inside, Match{Field: src(f, "meta mark"), Set: mark})
			through.add(accept, of(f), Match{Field: f.Header() + "daddr . meta mark", Set: mark})
		}
	}
	for _, typ := range []uint8{135, 136} { // by which neighbours find each other, RFC 4861
		sources.add(leave, icmp6, icmpType(typ), neighbourly, from(linkLocal))
	}
	sources.add(leave, icmp6, icmpType(135), neighbourly, from(single(netip.IPv6Unspecified())))
	for _, p := range []netip.Prefix{linkLocal, single(netip.IPv6Unspecified()), single(netip.IPv4Unspecified())} {
		sources.add(drop, from(p)) // what each kernel says by itself, about groups, routers and DHCP, is nobody's attempt
	}
	if !a.Shared { // else whoever is outside may be there
		for _, f := range Families() {
			sources.add(update(f.Strangers().Name, f.Header()+"saddr"), of(f))
		}
		sources.add(count)
		sources.add(drop)
	}

	in.add(accept, arriving)
	in.add(drop, dst(loopback4))
	in.add(drop, dst(loopback6))
	for _, typ := range []uint8{135, 136} {
		in.add(accept, icmp6, icmpType(typ), neighbourly)
	}
	if !a.Shared {
		in.add(drop, inside)
	}
	in.add(accept, icmp6, icmpType(134), neighbourly) // a router's word, of the way out

	for _, typ := range []uint8{133, 135, 136} { // like output
		out.add(drop, icmp6, icmpType(typ), owned)
		out.add(accept, icmp6, icmpType(typ), neighbourly)
	}
	if known != "" { // by what it is part of: also what sockets that are closed have left, and errors about it
		if len(users) > 0 {
			to[1].add(lookUp(b.keyed("user", 0, ByNumber, users), "meta skuid"), nobodys)
		}
		for i := range to[:2] {
			to[i].add(lookUp("", "ct mark"), nobodys, Match{Field: "ct mark", Set: known})
		}
	}
	if live != "" {
		passed := Match{Field: "meta mark", Set: live}
		in.add(accept, passed)
		out.add(accept, passed)
	}
	out.add(accept, staying)
	if !a.Onward {
		through.Rules, to = nil, to[:2]
	}
	b.plan.Chains = append(append(b.plan.Chains, to...), sources, raws[0], raws[1], in, out, through, b.postrouting())
	if a.Onward {
		b.plan.Chains = append(b.plan.Chains, hide)
	}
	return *b.plan, nil
}

// last is behind the cells, whose chains have 0. mangle is behind the kernel's table of flows, and before all NAT.
const (
	last   = 10
	mangle = -150
)

// numbers adds the set of these numbers, and returns its name; "" for none.
func (b *builder) numbers(name string, list []uint32) string {
	var spans []Span
	for _, n := range ordered(list, cmp.Compare[uint32]) {
		spans = append(spans, Span{Number: n})
	}
	return b.keyed(name, 0, ByNumber, spans)
}

// spans adds the set of those of list that are of a family, and returns its name; "" for none.
func (b *builder) spans(name string, f Family, key Key, list []Span) string {
	var mine []Span
	for _, s := range list {
		if FamilyOf(s.Prefix.Addr()) == f {
			mine = append(mine, s)
		}
	}
	slices.SortFunc(mine, func(x, y Span) int { return x.Prefix.Addr().Compare(y.Prefix.Addr()) })
	return b.keyed(name, f, key, mine)
}

func (b *builder) keyed(name string, f Family, key Key, spans []Span) string {
	if len(spans) == 0 {
		return ""
	}
	text := ""
	for _, s := range spans {
		text += s.String() + "\n"
	}
	s := Set{Name: named(name, f, text), Family: f, Static: true, Key: key, Spans: spans, Map: spans[0].To != 0}
	b.plan.Sets = append(b.plan.Sets, s)
	return s.Name
}
