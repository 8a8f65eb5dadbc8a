package firewall

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
)

// settle is how long a change of rules may go on before Watch tells of it.
const settle = 50 * time.Millisecond

// watch tells on a channel that someone other than the netlink port self changed rules.
func watch(ctx context.Context, self uint32) (<-chan struct{}, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, nfnetlink.Explain("watch the rules", err)
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
			msgs, err := conn.Receive()
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, unix.ENOBUFS): // what was lost for want of room was a change too
			case err != nil: // the socket is of no use any more
				return
			case !slices.ContainsFunc(msgs, func(m netlink.Message) bool { return m.Header.PID != self }):
				continue
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
