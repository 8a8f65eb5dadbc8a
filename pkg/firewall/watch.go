package firewall

import (
	"context"
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
)

// settle is how long a change of rules may go on before Watch tells of it.
const settle = 50 * time.Millisecond

// watch tells on a channel that someone other than the netlink port self
// changed rules.
func watch(ctx context.Context, self uint32) (<-chan struct{}, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, nfnetlink.Explain("watch the rules", err)
	}
	if err := conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		conn.Close()
		return nil, nfnetlink.Explain("watch the rules", err)
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	go func() {
		defer close(changes)
		defer conn.Close()
		defer stop()
		for {
			msgs, err := conn.Receive()
			if ctx.Err() != nil {
				return
			}
			// What was lost for want of room was a change too. After any
			// other error the socket is of no use.
			lost := errors.Is(err, unix.ENOBUFS)
			if err != nil && !lost {
				return
			}
			if !lost && !foreign(msgs, self) {
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

// foreign says whether one of msgs tells of a change by someone else.
func foreign(msgs []netlink.Message, self uint32) bool {
	for _, m := range msgs {
		if m.Header.PID != self {
			return true
		}
	}
	return false
}
