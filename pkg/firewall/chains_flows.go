package firewall

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
func (b *builder) goingOn() []rule {
	established := matchState{stateEstablished}
	var out []rule
	for _, f := range families() {
		out = append(out, to(accept{}, matchFamily{f}, matchOriginal{}, established, matchSet{set: keptSet(f)}))
	}
	// The guard ends a connection that is no longer allowed by a reset, which carries
	// nothing (RFC 9293, 3.5.2). Without it the server would wait for more.
	for _, port := range sorted(b.Gated) {
		ends := append(b.guardOwned(), matchOriginal{}, established, matchProto{proto: protoTCP}, matchPort{port}, matchReset{})
		out = append(out, to(accept{}, ends...))
	}
	for _, e := range b.inbound() {
		out = append(out, to(accept{}, matchReply{}, established, matchProto{proto: e.Proto}, matchSrcPort{e.Port}))
	}
	if b.Observe {
		out = append(out, to(accept{}, established))
	}
	return out
}

// ended drops what the guard still sends on a connection that is no longer allowed. The
// reset of a refusal would end it here, before the guard has told the server.
func (b *builder) ended() []rule {
	var out []rule
	for _, port := range sorted(b.Gated) {
		out = append(out, to(drop{}, append(b.guardOwned(), matchOriginal{}, matchState{stateEstablished}, matchProto{proto: protoTCP}, matchPort{port})...))
	}
	return out
}

// repliesIn lets in what belongs to flows that may go on. What is merely related to a
// flow, an FTP helper's data connection for one, has to be allowed by itself.
func (b *builder) repliesIn() []rule {
	established := matchState{stateEstablished}
	var out []rule
	for _, u := range plainUpstreams(b.Upstreams) {
		for _, p := range []uint8{protoUDP, protoTCP} {
			if u.Addr() != engineDNS() { // which answers on loopback
				out = append(out, to(accept{}, matchReply{}, established, matchSrc{u.Addr()}, matchProto{proto: p}, matchSrcPort{u.Port()}))
			}
		}
	}
	if b.engine() { // what it has passed on; nobody else's questions get out
		out = append(out, to(accept{}, matchReply{}, established, matchProto{proto: protoUDP}, matchSrcPort{53}))
	}
	for _, f := range families() {
		reply := []match{matchFamily{f}, matchReply{}, established}
		from := func(set string) []match { return append(slices.Clone(reply), matchSet{set, true}) }
		out = append(out, to(drop{}, from(b.deny[f])...))
		for _, s := range b.allowed(f) {
			out = append(out, to(accept{}, from(s)...))
		}
		out = append(out, to(keep{keptSet(f)}, from(keptSet(f))...), to(keep{keptSet(f)}, from(leaseSet(f))...),
			to(accept{}, from(leaseSet(f))...)) // if the other set is full, it ends with its lease
	}
	for _, e := range b.inbound() {
		out = append(out, to(accept{}, matchOriginal{}, established, matchProto{proto: e.Proto}, matchPort{e.Port}))
	}
	if b.Observe {
		out = append(out, to(accept{}, established))
	}
	return out
}

// inbound are the ports that may be connected to, each once, in order.
func (b *builder) inbound() []Entry {
	in := slices.Clone(b.Inbound)
	slices.SortFunc(in, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port)) })
	return slices.Compact(in)
}
