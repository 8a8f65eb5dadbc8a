package stage

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

// Group is the group that the guard runs in, and that rules ask for beside its
// uid. A container that shares the network may have been given that uid, which
// everybody can work out; the number of the group exists only once agent-init has
// started, and is told to nobody: it is in no file, no log and no argument. It is one
// for as long as the keeper lives: a guard that is started again needs no other
// rules, and has no older socket beside it.
type Group struct {
	GID uint32
	Any bool // rules can't ask for it: there are too few groups
}

// ChooseGroup draws the guard's group among those that are mapped. No account is in
// it, nor any process that can be seen. Groups of sockets can't be seen, but no
// socket has the guard's uid yet (see chooseUID).
func ChooseGroup(guardUID uint32, agent privdrop.Identity) (Group, error) {
	ids, err := mappedIDs("/proc/self/gid_map")
	if err != nil {
		return Group{}, err
	}
	_, taken, err := runningIDs()
	if err != nil {
		return Group{}, err
	}
	accounts, err := accountGroups("/etc/group", "/etc/passwd")
	if err != nil {
		return Group{}, err
	}
	for _, gid := range append(append(accounts, agent.Groups...), agent.GID, overflowGroup()) {
		taken[gid] = true
	}
	for i := range uint32(guardUIDs) { // of the session server, see ownGroup
		taken[firstGuardUID+i] = true
	}
	if gid, ok := drawGroup(drawable(ids), taken); ok {
		return Group{GID: gid}, nil
	}
	gid := ownGroup(ids, guardUID, agent.GID)
	if !mapped(gid, ids) {
		return Group{}, fault.New(fault.Privilege, "map at least 65536 groups into the container's user namespace (/etc/subgid)",
			"no group but root's is mapped, not even the agent's group %d", agent.GID)
	}
	return Group{GID: gid, Any: true}, nil
}

// drawGroup draws a group that is not taken, if there are enough to draw from.
func drawGroup(from []idRange, taken map[uint32]bool) (uint32, bool) {
	n := countIDs(from)
	if n < FewestGroups {
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

// Caveats say what is less without a group.
func (g Group) Caveats() []string {
	if !g.Any {
		return nil
	}
	return []string{fmt.Sprintf("the guard is known by its uid alone, since fewer than %d groups are mapped: whoever else gets that uid in this network may ask the DNS servers, and reach leased addresses past the gate", firstGroup+FewestGroups)}
}
