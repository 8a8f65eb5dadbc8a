package nft

import (
	"log/slog"
	"testing"

	"github.com/agent-init/agent-init/internal/netns"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// TestKernelLateAnswer: an answer that nobody took any more, as after a long
// freeze, spoils one exchange at most.
func TestKernelLateAnswer(t *testing.T) {
	netns.Enter(t)
	n, err := Open(false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	sealed, err := plan.New(plan.Config{Sealed: true})
	if err == nil {
		err = n.Apply(sealed, sealed)
	}
	if err != nil {
		t.Fatal(err)
	}
	read := n.read
	for _, late := range []netlink.Message{
		{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE, Flags: netlink.Request},
			Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, nfnetlink.Attr(unix.NFTA_TABLE_NAME, plan.TableName)...)},
		{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
			Data: []byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}},
	} {
		if _, err := read.conn.Send(late); err != nil {
			t.Fatal(err)
		}
		_, err := read.table(plan.TableName)
		t.Log("the first exchange:", err)
		for range 2 {
			if live, err := read.table(plan.TableName); err != nil || live == nil {
				t.Errorf("a later exchange: %v, %v", live, err)
			}
		}
	}
}
