package main

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/agent-init/agent-init/pkg/firewall"
)

// The guard's uid is one that no account has: below 65536, so that it exists in
// the usual user namespaces, and above what distributions hand out.
const (
	firstGuardUID = 64901
	guardUIDs     = 64
)

// chooseUID finds a uid for what is named that is nobody's: no account has it, no process
// runs under it, no socket of this network namespace is owned by it and it is mapped in this user namespace. It is exempt from
// nothing but the way to the upstream servers.
func chooseUID(what string, taken ...uint32) (uint32, error) {
	running, err := runningUIDs()
	if err != nil {
		return 0, err
	}
	sockets, err := firewall.SocketOwners()
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
		if uidMapped(uid) {
			return uid, nil
		}
	}
	return 0, faultf(exitPrivilege, "map at least 65536 uids into the container's user namespace",
		"no uid between %d and %d is free and mapped for %s", firstGuardUID, firstGuardUID+guardUIDs-1, what)
}

// runningUIDs are the owners of the processes that can be seen.
func runningUIDs() (map[uint32]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	out := map[uint32]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				out[st.Uid] = true
			}
		}
	}
	return out, nil
}

// uidMapped says whether uid exists in this user namespace
// (user_namespaces(7)). A system without them has every uid.
func uidMapped(uid uint32) bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return os.IsNotExist(err)
	}
	for line := range strings.Lines(string(data)) {
		var first, host, count uint64
		if n, _ := fmt.Sscan(line, &first, &host, &count); n == 3 && uint64(uid) >= first && uint64(uid) < first+count {
			return true
		}
	}
	return false
}
