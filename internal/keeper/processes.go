package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// endAll ends every process of a uid that one command has been given: what it forked, wherever that has gone. One that
// forks meanwhile is found at the next look.
func endAll(uid uint32) error {
	for range 100 {
		pids, err := processesOf(uid)
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := privdrop.SignalAs(pids, unix.SIGKILL); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond) // they are reaped meanwhile
	}
	return errors.New("processes are left after a hundred looks")
}

// processesOf are those of uid that have not ended.
func processesOf(uid uint32) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, no := strconv.Atoi(entry.Name())
		var st unix.Stat_t
		if no == nil && unix.Stat(filepath.Join("/proc", entry.Name()), &st) == nil && st.Uid == uid && !ended(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// ended says whether a process waits for somebody to reap it (field 3 of proc_pid_stat(5)). In a container with an init of
// its own, that may be for ever.
func ended(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	state := string(data[strings.LastIndexByte(string(data), ')')+1:])
	return err != nil || strings.HasPrefix(state, " Z") || strings.HasPrefix(state, " X")
}
