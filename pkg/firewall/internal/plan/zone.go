package plan

// The kernel tells flows by their addresses and ports. So what one process has begun,
// from any port that it likes, can be taken for a part of what another one begins from
// there later, or keep it from a port. In a zone of its own (nf_conntrack_zones.h), a
// flow of the guard's is compared with those of the guard alone. The zone counts for
// the direction that it begins in; answers come to the zone where all others are, in
// which the kernel gives it a source port that no other flow has.

// GuardZone is any number but 0, where all other flows are.
const GuardZone = 7

// BeforeTracking is the priority of the table "raw" (NF_IP_PRI_RAW).
const BeforeTracking = -300

// zone puts what the guard begins apart.
func (b *builder) zone() Chain {
	return Chain{Name: "zone", Hook: "output", Priority: BeforeTracking, Rules: []Rule{To(Zone{GuardZone}, b.guardOwned()...)}}
}
