package drop

import (
	"encoding/binary"
	"runtime"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// call is one system call as the filter sees it.
type call struct {
	arch, nr uint32
	args     [3]uint64
}

// decide runs the filter in an interpreter. That loads in network order, as
// from a packet, so each word is written so.
func decide(t *testing.T, filter []unix.SockFilter, c call) uint32 {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, f := range filter {
		raw = append(raw, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K})
	}
	instructions, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter has unknown instructions")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[dataNumber:], c.nr)
	binary.BigEndian.PutUint32(data[dataArch:], c.arch)
	for i, arg := range c.args {
		binary.BigEndian.PutUint32(data[dataArgs+8*i:], uint32(arg))
		binary.BigEndian.PutUint32(data[dataArgs+8*i+4:], uint32(arg>>32))
	}
	verdict, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(verdict)
}

func TestSeccompFilter(t *testing.T) {
	native, foreign := uint32(unix.AUDIT_ARCH_X86_64), []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64, 0}
	if runtime.GOARCH == "arm64" {
		native, foreign = unix.AUDIT_ARCH_AARCH64, []uint32{unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64, 0}
	}
	const (
		allow = unix.SECCOMP_RET_ALLOW
		kill  = unix.SECCOMP_RET_KILL_PROCESS
	)
	eperm, enosys := deny(unix.EPERM), deny(unix.ENOSYS)
	const high = 0xdeadbeef << 32 // the kernel ignores it in an int
	loose, strict := seccompFilter(false, false), seccompFilter(true, true)
	if len(strict) > 4096 { // BPF_MAXINSNS
		t.Fatalf("%d instructions", len(strict))
	}
	for _, arch := range foreign {
		for _, filter := range [][]unix.SockFilter{loose, strict} {
			if got := decide(t, filter, call{arch: arch, nr: unix.SYS_READ}); got != kill {
				t.Errorf("architecture %#x: %#x", arch, got)
			}
		}
	}
	for _, c := range []struct {
		name          string
		nr            uint32
		args          [3]uint64
		loose, strict uint32
	}{
		{"read", unix.SYS_READ, [3]uint64{}, allow, allow},
		{"execve", unix.SYS_EXECVE, [3]uint64{}, allow, allow},
		{"ptrace", unix.SYS_PTRACE, [3]uint64{}, allow, allow},
		{"unix", unix.SYS_SOCKET, [3]uint64{unix.AF_UNIX, unix.SOCK_RAW, 0}, allow, allow},
		{"tcp", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC, 0}, allow, allow},
		{"udp6", unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 17}, allow, allow},
		{"ping", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP}, allow, eperm},
		{"ping6, high bits", unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM, high | unix.IPPROTO_ICMPV6}, allow, eperm},
		{"mptcp", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, allow, allow},
		{"tcp by number", unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_STREAM, high | unix.IPPROTO_TCP}, allow, allow},
		{"X43 smc", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM, 256}, eperm, eperm},
		{"X43 smc6, high bits", unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, high | 256}, eperm, eperm},
		{"sctp", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, eperm, eperm},
		{"udp-lite", unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}, eperm, eperm},
		{"dgram of 256", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_DGRAM, 256}, eperm, eperm},
		{"route netlink", unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow, allow},
		{"netfilter netlink", unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, eperm, eperm},
		{"E56 raw", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_RAW, 1}, eperm, eperm},
		{"E56 raw, high bits", unix.SYS_SOCKET, [3]uint64{high | unix.AF_INET, high | unix.SOCK_RAW | unix.SOCK_CLOEXEC, 1}, eperm, eperm},
		{"E56 raw6", unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_NONBLOCK, 58}, eperm, eperm},
		{"E56 packet by the old way", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_PACKET, 0x300}, eperm, eperm},
		{"E56 unknown type bits", unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM | 0x10, 0}, eperm, eperm},
		{"E56 packet", unix.SYS_SOCKET, [3]uint64{unix.AF_PACKET, unix.SOCK_DGRAM, 0}, eperm, eperm},
		{"E57 vsock", unix.SYS_SOCKET, [3]uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, eperm, eperm},
		{"xdp", unix.SYS_SOCKET, [3]uint64{unix.AF_XDP, unix.SOCK_RAW, 0}, eperm, eperm},
		{"alg", unix.SYS_SOCKET, [3]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, eperm, eperm},
		{"no family", unix.SYS_SOCKET, [3]uint64{}, eperm, eperm},
		{"clone3", unix.SYS_CLONE3, [3]uint64{}, enosys, enosys},
		{"io_uring", unix.SYS_IO_URING_SETUP, [3]uint64{}, enosys, enosys},
		{"bpf", unix.SYS_BPF, [3]uint64{}, eperm, eperm},
		{"keyctl", unix.SYS_KEYCTL, [3]uint64{}, eperm, eperm},
		{"E66 setns", unix.SYS_SETNS, [3]uint64{}, eperm, eperm},
		{"E66 unshare", unix.SYS_UNSHARE, [3]uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNET}, allow, eperm},
		{"unshare files", unix.SYS_UNSHARE, [3]uint64{unix.CLONE_FILES}, allow, allow},
		{"E66 clone", unix.SYS_CLONE, [3]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, allow, eperm},
		{"fork", unix.SYS_CLONE, [3]uint64{uint64(unix.SIGCHLD) | unix.CLONE_CHILD_SETTID}, allow, allow},
		{"thread", unix.SYS_CLONE, [3]uint64{0x3d0f00}, allow, allow},
		{"mount", unix.SYS_MOUNT, [3]uint64{}, allow, eperm},
		{"TCGETS", unix.SYS_IOCTL, [3]uint64{0, unix.TCGETS}, allow, allow},
		{"TIOCSTI", unix.SYS_IOCTL, [3]uint64{0, unix.TIOCSTI}, eperm, eperm},
		{"TIOCSTI, high bits", unix.SYS_IOCTL, [3]uint64{0, high | unix.TIOCSTI}, eperm, eperm},
		{"TIOCSETD", unix.SYS_IOCTL, [3]uint64{0, unix.TIOCSETD}, eperm, eperm},
		{"open_tree_attr", 467, [3]uint64{}, allow, eperm},
		{"TIOCLINUX", unix.SYS_IOCTL, [3]uint64{0, unix.TIOCLINUX}, eperm, eperm},
	} {
		for _, v := range []struct {
			filter []unix.SockFilter
			want   uint32
		}{{loose, c.loose}, {strict, c.strict}} {
			if got := decide(t, v.filter, call{native, c.nr, c.args}); got != v.want {
				t.Errorf("%s: %#x, want %#x", c.name, got, v.want)
			}
		}
	}
	if runtime.GOARCH == "amd64" {
		if got := decide(t, loose, call{arch: native, nr: 0x40000000 | unix.SYS_SOCKET}); got != enosys {
			t.Errorf("x32: %#x", got)
		}
	}
}
