package stage

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/agent-init/agent-init/internal/fault"
)

// The guard's uid is one that no account has: below 65536, so that it exists in
// the usual user namespaces, and above what distributions hand out.
const (
	firstGuardUID = 64901
	guardUIDs     = 64
)

// ChooseUID finds a uid for what is named that is nobody's: no account has it, no process
// runs under it, no socket of this network namespace is owned by it (owners lists those that
// own one) and it is mapped in this user namespace.
func ChooseUID(what string, owners func() (map[uint32]bool, error), taken ...uint32) (uint32, error) {
	running, _, err := runningIDs()
	if err != nil {
		return 0, err
	}
	sockets, err := owners()
	if err != nil {
		return 0, err
	}
	ids, err := mappedIDs("/proc/self/uid_map")
	if err != nil {
		return 0, err
	}
	for uid := uint32(firstGuardUID); uid < firstGuardUID+guardUIDs; uid++ {
		if slices.Contains(taken, uid) || running[uid] || sockets[uid] {
			continue
		}
		if _, err := user.LookupId(strconv.Itoa(int(uid))); err == nil {
			continue
		}
		if _, err := user.LookupGroupId(strconv.Itoa(int(uid))); err == nil {
			continue
		}
		if mapped(uid, ids) {
			return uid, nil
		}
	}
	return 0, fault.New(fault.Privilege, "map at least 65536 uids into the container's user namespace",
		"no uid between %d and %d is free and mapped for %s", firstGuardUID, firstGuardUID+guardUIDs-1, what)
}

// runningIDs are the users and groups of the processes that can be seen.
func runningIDs() (uids, gids map[uint32]bool, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil, fmt.Errorf("list processes: %w", err)
	}
	uids, gids = map[uint32]bool{}, map[uint32]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				uids[st.Uid], gids[st.Gid] = true, true
			}
		}
	}
	return uids, gids, nil
}

// idRange is a range of ids.
type idRange struct{ first, count uint64 }

// mappedIDs are the ids that exist in this user namespace (user_namespaces(7)), as
// the file of its map has them. A system without such namespaces has every id.
func mappedIDs(file string) ([]idRange, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return []idRange{{0, 1<<32 - 1}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the map of ids: %w", err)
	}
	var out []idRange
	for line := range strings.Lines(string(data)) {
		var r idRange
		var outside uint64
		if _, err := fmt.Sscan(line, &r.first, &outside, &r.count); err != nil {
			return nil, fmt.Errorf("%s has the line %q", file, line)
		}
		out = append(out, r)
	}
	return out, nil
}

func mapped(id uint32, in []idRange) bool {
	return slices.ContainsFunc(in, func(r idRange) bool { return uint64(id) >= r.first && uint64(id) < r.first+r.count })
}

// What a group is drawn from.
const (
	firstGroup   = 100       // those below are the same in every image
	lastGroup    = 1<<31 - 1 // some programs take ids for signed numbers
	FewestGroups = 500       // of less, the right one is soon found by trying
	overflowID   = 65534     // what an id that is not mapped shows as, unless the system says otherwise
)

// drawable is what of ids a group may be drawn from.
func drawable(ids []idRange) (out []idRange) {
	for _, r := range ids {
		first, end := max(r.first, firstGroup), min(r.first+r.count, lastGroup+1)
		if first < end {
			out = append(out, idRange{first, end - first})
		}
	}
	return out
}

// countIDs is how many ids the ranges have.
func countIDs(rs []idRange) (n uint64) {
	for _, r := range rs {
		n += r.count
	}
	return n
}

// GroupsToDraw is how many groups the guard's may be drawn from.
func GroupsToDraw() (uint64, error) {
	ids, err := mappedIDs("/proc/self/gid_map")
	return countIDs(drawable(ids)), err
}

// OwnGroup is a group for a uid of agent-init's that no rule asks for.
func OwnGroup(uid, agent uint32) (uint32, error) {
	ids, err := mappedIDs("/proc/self/gid_map")
	if err != nil {
		return 0, err
	}
	return ownGroup(ids, uid, agent), nil
}

// ownGroup is of the same number, or where that isn't mapped, any but root's; the agent's if
// there is no other.
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
