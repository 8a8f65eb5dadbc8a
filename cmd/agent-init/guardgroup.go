package main

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// guardGroup is the group that the guard runs in, and that rules ask for beside its
// uid. A container that shares the network may have been given that uid, which
// everybody can work out; the number of the group exists only once agent-init has
// started, and is told to nobody: it is in no file, no log and no argument. It is one
// for as long as the keeper lives: a guard that is started again needs no other
// rules, and has no older socket beside it.
type guardGroup struct {
	gid uint32
	any bool // rules can't ask for it: there are too few groups
}

// What a group is drawn from.
const (
	firstGroup   = 100       // those below are the same in every image
	lastGroup    = 1<<31 - 1 // some programs take ids for signed numbers
	fewestGroups = 500       // of less, the right one is soon found by trying
	overflowID   = 65534     // what an id that is not mapped shows as, unless the system says otherwise
)

// chooseGroup draws the guard's group among those that are mapped. No account is in
// it, nor any process that can be seen. Groups of sockets can't be seen, but no
// socket has the guard's uid yet (see chooseUID).
func chooseGroup(guardUID uint32, agent privdrop.Identity) (guardGroup, error) {
	ids, err := mappedIDs("/proc/self/gid_map")
	if err != nil {
		return guardGroup{}, err
	}
	_, taken, err := runningIDs()
	if err != nil {
		return guardGroup{}, err
	}
	accounts, err := accountGroups("/etc/group", "/etc/passwd")
	if err != nil {
		return guardGroup{}, err
	}
	for _, gid := range append(append(accounts, agent.Groups...), agent.GID, overflowGroup()) {
		taken[gid] = true
	}
	for i := range uint32(guardUIDs) { // of the session server, see ownGroup
		taken[firstGuardUID+i] = true
	}
	if gid, ok := drawGroup(drawable(ids), taken); ok {
		return guardGroup{gid: gid}, nil
	}
	gid := ownGroup(ids, guardUID, agent.GID)
	if !mapped(gid, ids) {
		return guardGroup{}, fault.New(fault.Privilege, "map at least 65536 groups into the container's user namespace (/etc/subgid)",
			"neither the agent's group %d nor any other but root's is mapped", agent.GID)
	}
	return guardGroup{gid: gid, any: true}, nil
}

// drawGroup draws a group that is not taken, if there are enough to draw from.
func drawGroup(from []idRange, taken map[uint32]bool) (uint32, bool) {
	n := idCount(from)
	if n < fewestGroups {
		return 0, false
	}
	for range 1000 { // so many fail only if next to all are taken
		var b [8]byte
		rand.Read(b[:])
		i := binary.NativeEndian.Uint64(b[:]) % n
		for _, r := range from {
			if i >= r.count {
				i -= r.count
				continue
			}
			if gid := uint32(r.first + i); !taken[gid] {
				return gid, true
			}
			break
		}
	}
	return 0, false
}

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

func idCount(rs []idRange) (n uint64) {
	for _, r := range rs {
		n += r.count
	}
	return n
}

// ownGroup is a group for a uid of agent-init's that no rule asks for: of the same
// number, or where that isn't mapped, any but root's; the agent's if there is no other.
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

// accountGroups are the groups of group(5), and the first ones of passwd(5).
func accountGroups(groupFile, passwdFile string) ([]uint32, error) {
	var out []uint32
	for _, f := range []struct {
		path  string
		field int
	}{{groupFile, 2}, {passwdFile, 3}} {
		data, err := os.ReadFile(f.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list groups: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) <= f.field {
				continue // a comment, or nothing that anybody understands
			}
			if gid, err := strconv.ParseUint(fields[f.field], 10, 32); err == nil {
				out = append(out, uint32(gid))
			}
		}
	}
	return out, nil
}

// overflowGroup is what rules take for the group of whoever has none here.
func overflowGroup() uint32 {
	data, err := os.ReadFile("/proc/sys/kernel/overflowgid")
	if err != nil {
		return overflowID
	}
	gid, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return overflowID
	}
	return uint32(gid)
}

// caveats say what is less without a group.
func (g guardGroup) caveats() []string {
	if !g.any {
		return nil
	}
	return []string{fmt.Sprintf("the guard is known by its uid alone, since fewer than %d groups are mapped: whoever else gets that uid in this network may ask the DNS servers, and reach leased addresses past the gate", firstGroup+fewestGroups)}
}
