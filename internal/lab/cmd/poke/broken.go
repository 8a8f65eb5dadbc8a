package main

import (
	"os"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutNetlink becomes a command for which some netlink sockets do not
// exist, as in a kernel that was built without them.
func withoutNetlink(args []string) (detail, error) {
	a, err := parse(flags("without-netlink"), args, 2)
	if err != nil {
		return nil, err
	}
	var protocol uint32
	refuse := uint32(unix.SECCOMP_RET_ERRNO | unix.EPROTONOSUPPORT)
	other := uint32(unix.SECCOMP_RET_ALLOW)
	if a[0] == "all" {
		other = refuse
	} else if n, err := number(a[0]); err != nil {
		return nil, err
	} else {
		protocol = uint32(n)
	}
	const number, args0, args2 = 0, 16, 32 // in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 5},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: args0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_NETLINK, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: args2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: protocol, Jf: 2},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: other},
	}
	path, err := exec.LookPath(a[1])
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread() // the thread that gets the filter is the one that executes
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	return nil, os.NewSyscallError("execve", unix.Exec(path, a[1:], os.Environ()))
}
