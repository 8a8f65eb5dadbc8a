package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

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
