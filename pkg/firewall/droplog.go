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
	nfulnlConfig     = 1 // NFULNL_MSG_CONFIG
	nfulaCfgCmd      = 1
	nfulaCfgMode     = 2
	nfulaCfgTimeout  = 4 // in hundredths of a second
	nfulaCfgQThresh  = 5
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

// OpenDropLog opens the socket that gets what plans with this DropGroup refuse. It needs NET_ADMIN, but reading it
// (ReadDrops) needs no capability. As long as it is open, nobody else can have the group.
func OpenDropLog(group uint16) (*os.File, error) {
	what := fmt.Sprintf("open the log of dropped packets, NFLOG group %d", group)
	if group == 0 {
		return nil, errors.New(what + ": group 0 means no log")
	}
	fd, err := nfnetlink.Socket()
	if err == nil {
		if err = bindDropLog(fd, group); err == nil {
			return os.NewFile(uintptr(fd), "nflog"), nil
		}
		unix.Close(fd)
	}
	return nil, nfnetlink.Explain(what, err)
}

func bindDropLog(fd int, group uint16) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, dropBuffer); err != nil {
		return err
	}
	for _, attr := range [][]byte{
		nfnetlink.Append(nil, nfulaCfgCmd, nfulnlCmdBind),
		nfnetlink.Append(nil, nfulaCfgMode, append(binary.BigEndian.AppendUint32(nil, plan.SnapLen), nfulnlCopyPacket, 0)...),
		nfnetlink.Append(nil, nfulaCfgTimeout, binary.BigEndian.AppendUint32(nil, uint32(dropDelay.Milliseconds()/10))...),
		nfnetlink.Append(nil, nfulaCfgQThresh, binary.BigEndian.AppendUint32(nil, dropBatch)...),
	} {
		q := nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_ULOG, Type: nfulnlConfig, Group: group, Attrs: attr}
		// The kernel's word may come behind packets, which nobody misses.
		if err := nfnetlink.StreamOn(fd, q, func(nfnetlink.Attrs) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
