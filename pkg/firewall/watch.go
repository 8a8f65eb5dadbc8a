package firewall

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
)

// settle is how long a change of rules may go on before Watch tells of it.
const settle = 50 * time.Millisecond

// watch tells on a channel that someone other than the netlink port self changed rules; 0 is nobody's. Where there are
// several tables of ours, each with a keeper, one is not woken by what others do to theirs. All do that with each lease.
func watch(ctx context.Context, self uint32, table string) (<-chan struct{}, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, nfnetlink.Explain("watch the rules", err)
	}
	if !strings.HasPrefix(table, cellPrefix) {
		table = ""
	}
	if err := hearOnly(conn, self, table); err != nil {
		return nil, nfnetlink.Explain("watch the rules", errors.Join(err, conn.Close()))
	}
	if err := conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return nil, nfnetlink.Explain("watch the rules", errors.Join(err, conn.Close()))
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	go func() {
		defer close(changes)
		defer conn.Close()
		defer stop()
		for {
			_, err := conn.Receive()
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, unix.ENOBUFS): // what was lost for want of room was a change too
			case err != nil: // the socket is of no use any more
				return
			}
			select {
			case <-time.After(settle):
			case <-ctx.Done():
				return
			}
			select {
			case changes <- struct{}{}:
			default: // the last one has not been taken yet
			}
		}
	}()
	return changes, nil
}

// hearOnly has conn get only messages of changes that self did not make, and that are about a table, if it is named. What
// comes in one batch is by one transaction, and its first message stands for all: self is the port in its header, and its
// first attribute, behind the headers of netlink and nfnetlink, names the table.
func hearOnly(conn *netlink.Conn, self uint32, table string) error {
	const port, name = 12, unix.NLMSG_HDRLEN + 4 + unix.NLA_HDRLEN
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	var program []unix.SockFilter
	if self != 0 {
		order := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, self)) // as a filter loads it
		program = append(program,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: port},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ, K: order, Jf: 1},
			none)
	}
	if table != "" {
		for i, c := range append([]byte(table), 0) {
			program = append(program,
				unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: uint32(name + i)},
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ, K: uint32(c), Jt: 1},
				none)
		}
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 31})
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(failed, err)
}
