package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// From nfnetlink_log.h.
const (
	nfulnlConfig = 1 // NFULNL_MSG_CONFIG

	nfulaCfgCmd     = 1
	nfulaCfgMode    = 2
	nfulaCfgTimeout = 4 // in hundredths of a second
	nfulaCfgQThresh = 5

	nfulnlCmdBind    = 1
	nfulnlCopyPacket = 2
)

// Packets wait in the kernel until dropBatch have come or dropDelay is over. The
// rules let through few enough to hand over each at once.
const (
	dropBatch  = 1
	dropDelay  = 10 * time.Millisecond
	dropBuffer = 1 << 20 // bytes of packets that nobody has read yet
)

// OpenDropLog opens the socket that gets what plans with this DropGroup
// refuse. It needs NET_ADMIN; the file can be passed to a process that has
// no capability, to be read there by ReadDrops. While any process has it open,
// no other can have the group.
func OpenDropLog(group uint16) (*os.File, error) {
	what := fmt.Sprintf("open the log of dropped packets, NFLOG group %d", group)
	if group == 0 {
		return nil, errors.New(what + ": group 0 means no log")
	}
	// A blocking one: the runtime's poller, which wakes a process up, watches all others.
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, nfnetlink.Explain(what, err)
	}
	f := os.NewFile(uintptr(fd), "nflog")
	if err := bindDropLog(fd, group); err != nil {
		f.Close()
		return nil, nfnetlink.Explain(what, err)
	}
	return f, nil
}

func bindDropLog(fd int, group uint16) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, dropBuffer); err != nil {
		return err
	}
	mode := append(binary.BigEndian.AppendUint32(nil, plan.SnapLen), nfulnlCopyPacket, 0)
	for _, a := range []struct {
		typ   uint16
		value []byte
	}{
		{nfulaCfgCmd, []byte{nfulnlCmdBind}},
		{nfulaCfgMode, mode},
		{nfulaCfgTimeout, binary.BigEndian.AppendUint32(nil, uint32(dropDelay.Milliseconds()/10))},
		{nfulaCfgQThresh, binary.BigEndian.AppendUint32(nil, dropBatch)},
	} {
		if err := configureDropLog(fd, group, a.typ, a.value); err != nil {
			return err
		}
	}
	return nil
}

// configureDropLog sends one setting and waits for the kernel's word, which
// is there when the sending returns, perhaps behind packets.
func configureDropLog(fd int, group, typ uint16, value []byte) error {
	body := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, byte(group >> 8), byte(group)}
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(value)))
	body = binary.NativeEndian.AppendUint16(body, typ)
	body = append(body, value...)
	body = append(body, make([]byte, -len(body)&3)...)
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, unix.NFNL_SUBSYS_ULOG<<8|nfulnlConfig)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = binary.NativeEndian.AppendUint32(msg, uint32(typ)) // sequence number
	msg = binary.NativeEndian.AppendUint32(msg, 0)
	if err := unix.Sendto(fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err != nil {
			return err
		}
		if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
			continue
		}
		if e := -int32(binary.NativeEndian.Uint32(buf[unix.NLMSG_HDRLEN:])); e != 0 {
			return unix.Errno(e)
		}
		return nil
	}
}
