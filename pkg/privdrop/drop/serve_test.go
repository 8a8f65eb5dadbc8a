package drop

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestServeFilter: who serves what it has open can open no more, start nothing, and
// reach no other process.
func TestServeFilter(t *testing.T) {
	const pid = 4242
	allow, eperm := uint32(unix.SECCOMP_RET_ALLOW), deny(unix.EPERM)
	filter := serveFilter(pid)
	for _, c := range []struct {
		name string
		nr   uint32
		args [3]uint64
		want uint32
	}{
		{"read", unix.SYS_READ, [3]uint64{}, allow},
		{"a thread", unix.SYS_CLONE, [3]uint64{0x3d0f00}, allow},
		{"a process", unix.SYS_CLONE, [3]uint64{unix.CLONE_VM | uint64(unix.SIGCHLD)}, eperm},
		{"tcp", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 0}, allow},
		{"udp6", unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM, 0}, allow},
		{"its own thread", unix.SYS_TGKILL, [3]uint64{pid, 7, 23}, allow},
		{"another's thread", unix.SYS_TGKILL, [3]uint64{pid + 1, 7, 23}, eperm},
		{"unix", unix.SYS_SOCKET, [3]uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, eperm},
		{"netlink", unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, eperm},
		{"raw", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_RAW, 1}, eperm},
		{"execve", unix.SYS_EXECVE, [3]uint64{}, eperm},
		{"openat", unix.SYS_OPENAT, [3]uint64{}, eperm},
		{"truncate", unix.SYS_TRUNCATE, [3]uint64{}, eperm},
		{"setxattr", unix.SYS_SETXATTR, [3]uint64{}, eperm},
		{"fchmodat2", 452, [3]uint64{}, eperm},
		{"mq_open", unix.SYS_MQ_OPEN, [3]uint64{}, eperm},
		{"ptrace", unix.SYS_PTRACE, [3]uint64{}, eperm},
		{"kill", unix.SYS_KILL, [3]uint64{1, 9}, eperm},
		{"listen", unix.SYS_LISTEN, [3]uint64{}, eperm},
	} {
		if got := decide(t, filter, call{nr: c.nr, args: c.args}); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}
