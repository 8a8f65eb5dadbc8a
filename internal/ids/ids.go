// Package ids finds users and groups that are nobody's, for the processes of this program.
package ids

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
)

// The guard's uid is one that no account has: below 65536, so that it exists in
// the usual user namespaces, and above what distributions hand out.
const (
	firstGuardUID = 64901
	guardUIDs     = 64
)

// ChooseUID finds a uid for what is named that no account, no running process and no socket of
// this network namespace has (owners lists those), and that is mapped in this user namespace.
func ChooseUID(what string, owners func() (map[uint32]bool, error), taken ...uint32) (uint32, error) {
	used, err := inUse("/etc/passwd", "/etc/group")
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
		if !slices.Contains(taken, uid) && !used[uid] && !sockets[uid] && mapped(uid, ids) {
			return uid, nil
		}
	}
	return 0, fault.New(fault.Privilege, "map at least 65536 uids into the container's user namespace",
		"no uid between %d and %d is free and mapped for %s", firstGuardUID, firstGuardUID+guardUIDs-1, what)
}

// inUse are the users and groups of accounts (passwd(5), group(5)), and of the processes that can be seen.
func inUse(passwdFile, groupFile string) (map[uint32]bool, error) {
	used := map[uint32]bool{}
	for path, numbers := range map[string][]int{passwdFile: {2, 3}, groupFile: {2}} {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("list accounts: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			for _, n := range numbers {
				if len(fields) <= n {
					continue // a comment, or nothing that anybody understands
				}
				if id, err := strconv.ParseUint(fields[n], 10, 32); err == nil {
					used[uint32(id)] = true
				}
			}
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		var st unix.Stat_t
		if _, err := strconv.Atoi(e.Name()); err == nil && unix.Stat("/proc/"+e.Name(), &st) == nil {
			used[st.Uid], used[st.Gid] = true, true
		}
	}
	return used, nil
}

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
