// Package container is what a start can see of its container: whose processes there are,
// who could replace the program, which limits hold.
package container

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/text"
)

// PidRemedy is what to do where processes of others can be seen.
const PidRemedy = "give the container processes of its own: docker: no --pid=host, nor that of a container with another network;" +
	" compose: no pid: host; kubernetes: hostPID: false"

// ForeignProcesses says why the processes that are seen at proc are not of this
// container alone, or "". Where the machine's own are seen, the agent may look into
// those of its uid: their files, their memory, and by way of them the machine's
// network. The processes of a pod share its network, and are no concern here.
func ForeignProcesses(proc string) string {
	if stat, err := os.ReadFile(proc + "/2/stat"); err == nil && isKernelThread(stat) {
		return "the machine's processes are seen here (process 2 is one of the kernel's)"
	}
	var ours, its unix.Stat_t
	if unix.Stat(proc+"/self/ns/net", &ours) != nil || unix.Stat(proc+"/1/ns/net", &its) != nil {
		return "" // the self-test looks as the agent
	}
	if ours.Dev != its.Dev || ours.Ino != its.Ino {
		return fmt.Sprintf("process 1 (%s) is in another network than this container", commOf(proc+"/1"))
	}
	return ""
}

// isKernelThread reads proc_pid_stat(5). No other process has that flag, whatever
// it calls itself. All of the kernel's belong to the machine's own namespace.
func isKernelThread(stat []byte) bool {
	const flag = 0x00200000 // PF_KTHREAD, include/linux/sched.h
	// After the name, which is in parentheses: state, ppid, pgrp, session, tty_nr, tpgid, flags.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	return err == nil && flags&flag != 0
}

func commOf(proc string) string {
	data, err := os.ReadFile(proc + "/comm")
	if err != nil {
		return "unknown"
	}
	return text.Clean(string(bytes.TrimSpace(data)))
}
