package container

import (
	"bytes"
	"fmt"
	"os"

	"github.com/agent-init/agent-init/internal/text"
)

// PidRemedy is what to do where processes of others can be seen.
const PidRemedy = "give the container processes of its own: docker: no --pid=host, nor that of a container with another network;" +
	" compose: no pid: host; kubernetes: hostPID: false"

// ForeignProcesses says why the processes that are seen at proc are not of this container alone, or "". Where the
// machine's own are seen, the agent may look into those of its uid: their files, their memory, and by way of them the
// machine's network. The processes of a pod share its network, and are no concern here.
func ForeignProcesses(proc string) string {
	if stat, err := os.ReadFile(proc + "/2/stat"); err == nil && isKernelThread(stat) {
		return "the machine's processes are seen here (process 2 is one of the kernel's)"
	}
	if same, known := sameFile(proc+"/self/ns/net", proc+"/1/ns/net"); same || !known { // the self-test looks as the agent
		return ""
	}
	comm, err := os.ReadFile(proc + "/1/comm")
	if err != nil {
		comm = []byte("unknown")
	}
	return fmt.Sprintf("process 1 (%s) is in another network than this container", text.Clean(string(bytes.TrimSpace(comm))))
}

// isKernelThread reads proc_pid_stat(5). No other process has that flag, whatever
// it calls itself. All of the kernel's belong to the machine's own namespace.
func isKernelThread(stat []byte) bool {
	const flag = 0x00200000 // PF_KTHREAD, include/linux/sched.h
	var state string
	var ppid, pgrp, session, tty, foreground int
	var flags uint64
	after := stat[bytes.LastIndexByte(stat, ')')+1:] // the name, which is in parentheses
	_, err := fmt.Sscan(string(after), &state, &ppid, &pgrp, &session, &tty, &foreground, &flags)
	return err == nil && flags&flag != 0
}
