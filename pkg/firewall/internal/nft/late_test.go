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
	n, err := Open(false, nil, slog.New(slog.DiscardHandler))
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
	rule := func() error {
		q, err := zoneRule(n.handle(), "output", plan.Rule{Verdict: plan.Verdict{Do: setZone, N: 1}}, plan.Plan{})
		if err != nil {
			t.Fatal(err)
		}
		return n.transact(q)
	}
	for _, late := range []nfnetlink.Request{
		get(unix.NFT_MSG_GETTABLE, 0, nfnetlink.Text(unix.NFTA_TABLE_NAME, plan.TableName)),
		get(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, nil),
	} {
		var m netlink.Message
		if err := m.UnmarshalBinary(late.Encode()); err != nil {
			t.Fatal(err)
		}
		if _, err := n.sock.Send(m); err != nil {
			t.Fatal(err)
		}
		t.Log("the first exchange:", rule())
		for range 2 {
			if err := rule(); err != nil {
				t.Errorf("a later exchange: %v", err)
			}
			if live, err := n.read.table(); err != nil || live == nil {
				t.Errorf("a later look: %v, %v", live, err)
			}
		}
	}
}
