package plan

import (
	"cmp"
	"slices"
)

// A packet is never let through for being part of a flow. Whose flow it is counts
// as well: one of the policy's addresses, one that is leased, or one that was leased
// when it last answered, and that nobody has taken out since. These last are in a
// set of their own, which the kernel fills: so a connection outlives its lease, and
// still ends at once with the one transaction that takes its address out of both
// sets. However many flows the agent has made, none of them has to be looked for.
//
// Only answers put an address there. What the agent sends to one that never says
// anything keeps nothing open.

// goingOn lets flows go on, those that went out and those that came in. Others have
// been refused by then, such as what goes to a denied block.
func (b *builder) goingOn() []Rule {
	established := MatchState{StateEstablished}
	var out []Rule
	for _, f := range Families() {
		out = append(out, To(Accept{}, MatchFamily{f}, MatchOriginal{}, established, MatchSet{Set: KeptSet(f)}))
	}
	// The guard ends a connection that is no longer allowed by a reset, which carries
	// nothing (RFC 9293, 3.5.2). Without it the server would wait for more.
	for _, port := range sorted(b.Gated) {
		ends := append(b.guardOwned(), MatchOriginal{}, established, MatchProto{Proto: ProtoTCP}, MatchPort{port}, MatchReset{})
		out = append(out, To(Accept{}, ends...))
	}
	for _, e := range b.inbound() {
		out = append(out, To(Accept{}, MatchReply{}, established, MatchProto{Proto: e.Proto}, MatchSrcPort{e.Port}))
	}
	if b.Observe {
		out = append(out, To(Accept{}, established))
	}
	return out
}

// ended drops what the guard still sends on a connection that is no longer allowed. The
// reset of a refusal would end it here, before the guard has told the server.
func (b *builder) ended() []Rule {
	var out []Rule
	for _, port := range sorted(b.Gated) {
		out = append(out, To(Drop{}, append(b.guardOwned(), MatchOriginal{}, MatchState{StateEstablished}, MatchProto{Proto: ProtoTCP}, MatchPort{port})...))
	}
	return out
}

// repliesIn lets in what belongs to flows that may go on. What is merely related to a
// flow, an FTP helper's data connection for one, has to be allowed by itself.
func (b *builder) repliesIn() []Rule {
	established := MatchState{StateEstablished}
	var out []Rule
	for _, u := range plainUpstreams(b.Upstreams) {
		for _, p := range []uint8{ProtoUDP, ProtoTCP} {
			if u.Addr() != EngineDNS() { // which answers on loopback
				out = append(out, To(Accept{}, MatchReply{}, established, MatchSrc{u.Addr()}, MatchProto{Proto: p}, MatchSrcPort{u.Port()}))
			}
		}
	}
	if b.engine() { // what it has passed on; nobody else's questions get out
		out = append(out, To(Accept{}, MatchReply{}, established, MatchProto{Proto: ProtoUDP}, MatchSrcPort{53}))
	}
	for _, f := range Families() {
		reply := []Match{MatchFamily{f}, MatchReply{}, established}
		from := func(set string) []Match { return append(slices.Clone(reply), MatchSet{set, true}) }
		out = append(out, To(Drop{}, from(b.deny[f])...))
		for _, s := range b.allowed(f) {
			out = append(out, To(Accept{}, from(s)...))
		}
		out = append(out, To(Keep{KeptSet(f)}, from(KeptSet(f))...), To(Keep{KeptSet(f)}, from(LeaseSet(f))...),
			To(Accept{}, from(LeaseSet(f))...)) // if the other set is full, it ends with its lease
	}
	for _, e := range b.inbound() {
		out = append(out, To(Accept{}, MatchOriginal{}, established, MatchProto{Proto: e.Proto}, MatchPort{e.Port}))
	}
	if b.Observe {
		out = append(out, To(Accept{}, established))
	}
	return out
}

// inbound are the ports that may be connected to, each once, in order.
func (b *builder) inbound() []Entry {
	in := slices.Clone(b.Inbound)
	slices.SortFunc(in, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port)) })
	return slices.Compact(in)
}
