package xtables

import (
	"bytes"
	"fmt"
	"os"
)

// uidRange is a range of uids, both ends included.
type uidRange struct{ first, last uint32 }

func (u uidRange) String() string {
	if u.first == u.last {
		return fmt.Sprint(u.first)
	}
	return fmt.Sprintf("%d-%d", u.first, u.last)
}

// maxUID is the last uid there can be: the one after it stands for none.
const maxUID = 1<<32 - 2

// knownUIDs returns the uids that the user namespace of this process has, which
// is the network namespace's own in a container: rules can name no others.
func knownUIDs() ([]uidRange, error) {
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil, err
	}
	return parseUIDMap(data)
}

// parseUIDMap parses the lines of user_namespaces(7): first inside, first
// outside, count.
func parseUIDMap(data []byte) ([]uidRange, error) {
	var out []uidRange
	for line := range bytes.Lines(data) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(string(line), &inside, &outside, &count); err != nil || count == 0 || inside+count > 1<<32 {
			return nil, fmt.Errorf("the uid map has the line %q", line)
		}
		out = append(out, uidRange{uint32(inside), uint32(min(inside+count-1, maxUID))})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the user namespace has no uids")
	}
	return out, nil
}
