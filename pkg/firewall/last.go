package firewall

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// LastConnection makes a socket of TCP, which is connected, good for nothing else, so that it can be given to who must
// not have another one of its kind. A socket may be disconnected and connected anew, and would still count as its
// maker's to every rule. From now on it takes no segment with SYN, without which there is no new connection (RFC 9293,
// section 3.5). Nobody can take that filter off again (SO_LOCK_FILTER of socket(7)). It needs CAP_NET_ADMIN.
func LastConnection(f *os.File) error {
	raw, err := f.SyscallConn() // of nil an error
	if err != nil {
		return err
	}
	const flags, syn = 13, 0x02 // of the TCP header, where a socket's filter begins (tcp_filter in net/ipv4/tcp_ipv4.c)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 31},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	failed := raw.Control(func(fd uintptr) {
		var proto int
		if proto, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL); err == nil && proto != unix.IPPROTO_TCP {
			err = errors.New("not a socket of TCP")
		}
		if err == nil {
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
				&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
		}
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1)
		}
	})
	if err = errors.Join(failed, err); err != nil {
		return fmt.Errorf("filter a socket: %w", err)
	}
	return nil
}
