package firewall

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TestKernelLateAnswer: an answer that nobody took any more, as after a long
// freeze, spoils one exchange at most.
func TestKernelLateAnswer(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	f := open(t, Options{})
	apply(t, f, Config{GuardUID: guardUID})
	read := f.be.(*nft).read
	for _, late := range []netlink.Message{
		{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE, Flags: netlink.Request},
			Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, attr(unix.NFTA_TABLE_NAME, tableName)...)},
		{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
			Data: []byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}},
	} {
		if _, err := read.conn.Send(late); err != nil {
			t.Fatal(err)
		}
		_, err := read.table(tableName)
		t.Log("the first exchange:", err)
		for range 2 {
			if live, err := read.table(tableName); err != nil || live == nil {
				t.Errorf("a later exchange: %v, %v", live, err)
			}
		}
	}
}
