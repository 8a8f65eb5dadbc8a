package firewall

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
)

// settle is how long a change of rules may go on before Watch tells of it.
const settle = 50 * time.Millisecond

// watch tells on a channel that someone other than the netlink port self changed rules; 0 is nobody's.
func watch(ctx context.Context, self uint32) (<-chan struct{}, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, nfnetlink.Explain("watch the rules", err)
	}
	if self != 0 {
		if err := hearOthers(conn, self); err != nil {
			return nil, nfnetlink.Explain("watch the rules", errors.Join(err, conn.Close()))
		}
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

// hearOthers has conn get only messages of changes that self did not make. What comes in one batch is by one transaction,
// and its first message stands for all: self is the port in its header.
func hearOthers(conn *netlink.Conn, self uint32) error {
	const port = 12
	order := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, self)) // as a filter loads it
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: port},
		{Code: unix.BPF_JMP | unix.BPF_JEQ, K: order, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 31},
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(failed, err)
}
