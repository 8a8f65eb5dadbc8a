package ids

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
)

// What a group is drawn from.
const (
	firstGroup   = 100       // those below are the same in every image
	lastGroup    = 1<<31 - 1 // some programs take ids for signed numbers
	FewestGroups = 500       // of less, the right one is soon found by trying
	overflowID   = 65534     // what an id that is not mapped shows as, unless the system says otherwise
)

// Group is the group that the guard runs in, and that rules ask for beside its uid. A container that shares the network
// may have been given that uid, which everybody can work out; the number of the group exists only once agent-init has
// started, and is told to nobody: it is in no file, no log and no argument. It stays for as long as the keeper lives: a
// guard that is started again needs no other rules, and has no older socket beside it.
type Group struct {
	GID uint32
	Any bool // rules can't ask for it: there are too few groups
}

// ChooseGroup draws the guard's group among those that are mapped. No account is in it, nor any process that can be
// seen, nor the agent. Groups of sockets can't be seen, but no socket has the guard's uid yet (see ChooseUID).
func ChooseGroup(guardUID, agent uint32, agents ...uint32) (Group, error) {
	ids, err := mappedIDs("/proc/self/gid_map")
	if err != nil {
		return Group{}, err
	}
	taken, err := inUse("/etc/passwd", "/etc/group")
	if err != nil {
		return Group{}, err
	}
	for _, gid := range append([]uint32{agent, overflowGroup()}, agents...) {
		taken[gid] = true
	}
	for i := range uint32(guardUIDs) { // of the session server, see ownGroup
		taken[firstGuardUID+i] = true
	}
	if gid, ok := drawGroup(ids, taken); ok {
		return Group{GID: gid}, nil
	}
	gid := ownGroup(ids, guardUID, agent)
	if !mapped(gid, ids) {
		return Group{}, fault.New(fault.Privilege, "map at least 65536 groups into the container's user namespace (/etc/subgid)",
			"no group but root's is mapped, not even the agent's group %d", agent)
	}
	return Group{GID: gid, Any: true}, nil
}

// Caveats say what is less without a group.
func (g Group) Caveats() []string {
	if !g.Any {
		return nil
	}
	return []string{fmt.Sprintf("the guard is known by its uid alone, since fewer than %d groups are mapped: whoever else gets that uid in this network may ask the DNS servers, and reach leased addresses past the gate", firstGroup+FewestGroups)}
}

// GroupsToDraw is how many groups the guard's may be drawn from.
func GroupsToDraw() (uint64, error) {
	ids, err := mappedIDs("/proc/self/gid_map")
	_, n := drawable(ids)
	return n, err
}

// drawable is what of ids a group may be drawn from, and how many those are.
func drawable(ids []idRange) (out []idRange, n uint64) {
	for _, r := range ids {
		first, end := max(r.first, firstGroup), min(r.first+r.count, lastGroup+1)
		if first < end {
			out = append(out, idRange{first, end - first})
			n += end - first
		}
	}
	return out, n
}

// drawGroup draws a group that is not taken, if there are enough to draw from.
func drawGroup(ids []idRange, taken map[uint32]bool) (uint32, bool) {
	from, n := drawable(ids)
	if n < FewestGroups {
		return 0, false
	}
	for range 1000 { // so many fail only if next to all are taken
		var b [8]byte
		rand.Read(b[:])
		i := binary.NativeEndian.Uint64(b[:]) % n
		for _, r := range from {
			if i < r.count {
				if gid := uint32(r.first + i); !taken[gid] {
					return gid, true
				}
				break
			}
			i -= r.count
		}
	}
	return 0, false
}

// overflowGroup is what rules take for the group of whoever has none here.
func overflowGroup() uint32 {
	data, _ := os.ReadFile("/proc/sys/kernel/overflowgid")
	gid, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return overflowID
	}
	return uint32(gid)
}

// OwnGroup is a group for a uid of agent-init's that no rule asks for.
func OwnGroup(uid, agent uint32) (uint32, error) {
	ids, err := mappedIDs("/proc/self/gid_map")
	return ownGroup(ids, uid, agent), err
}

// ownGroup is of the same number, or where that isn't mapped, any but root's; the agent's if there is no other.
func ownGroup(in []idRange, uid, agent uint32) uint32 {
	if mapped(uid, in) {
		return uid
	}
	for _, r := range in {
		for id := r.first; id < r.first+min(r.count, 3); id++ {
			if id != 0 && id != uint64(agent) {
				return uint32(id)
			}
		}
	}
	return agent
}
