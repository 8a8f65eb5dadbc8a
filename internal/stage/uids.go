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
	"github.com/agent-init/agent-init/pkg/firewall"
)

// The guard's uid is one that no account has: below 65536, so that it exists in
// the usual user namespaces, and above what distributions hand out.
const (
	FirstGuardUID = 64901
	guardUIDs     = 64
)

// ChooseUID finds a uid for what is named that is nobody's: no account has it, no process
// runs under it, no socket of this network namespace is owned by it and it is mapped in this user namespace.
func ChooseUID(what string, taken ...uint32) (uint32, error) {
	running, _, err := runningIDs()
	if err != nil {
		return 0, err
	}
	sockets, err := firewall.SocketOwners()
	if err != nil {
		return 0, err
	}
	ids, err := MappedIDs("/proc/self/uid_map")
	if err != nil {
		return 0, err
	}
	for uid := uint32(FirstGuardUID); uid < FirstGuardUID+guardUIDs; uid++ {
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
		"no uid between %d and %d is free and mapped for %s", FirstGuardUID, FirstGuardUID+guardUIDs-1, what)
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

// IDRange is a range of ids.
type IDRange struct{ first, count uint64 }

// MappedIDs are the ids that exist in this user namespace (user_namespaces(7)), as
// the file of its map has them. A system without such namespaces has every id.
func MappedIDs(file string) ([]IDRange, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return []IDRange{{0, 1<<32 - 1}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the map of ids: %w", err)
	}
	var out []IDRange
	for line := range strings.Lines(string(data)) {
		var r IDRange
		var outside uint64
		if _, err := fmt.Sscan(line, &r.first, &outside, &r.count); err != nil {
			return nil, fmt.Errorf("%s has the line %q", file, line)
		}
		out = append(out, r)
	}
	return out, nil
}

func mapped(id uint32, in []IDRange) bool {
	return slices.ContainsFunc(in, func(r IDRange) bool { return uint64(id) >= r.first && uint64(id) < r.first+r.count })
}

// What a group is drawn from.
const (
	firstGroup   = 100       // those below are the same in every image
	lastGroup    = 1<<31 - 1 // some programs take ids for signed numbers
	FewestGroups = 500       // of less, the right one is soon found by trying
	overflowID   = 65534     // what an id that is not mapped shows as, unless the system says otherwise
)

// Drawable is what of ids a group may be drawn from.
func Drawable(ids []IDRange) (out []IDRange) {
	for _, r := range ids {
		first, end := max(r.first, firstGroup), min(r.first+r.count, lastGroup+1)
		if first < end {
			out = append(out, IDRange{first, end - first})
		}
	}
	return out
}

// CountIDs is how many ids the ranges have.
func CountIDs(rs []IDRange) (n uint64) {
	for _, r := range rs {
		n += r.count
	}
	return n
}

// OwnGroup is a group for a uid of agent-init's that no rule asks for: of the same
// number, or where that isn't mapped, any but root's; the agent's if there is no other.
func OwnGroup(in []IDRange, uid, agent uint32) uint32 {
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
