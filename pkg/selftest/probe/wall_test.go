package probe

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
)

// A real packet filter in front of a default route, in both ways that one can
// refuse. What the kernel then tells a program differs by protocol and family.
func TestKernelWall(t *testing.T) {
	tests := map[string]struct {
		rules  [][]expr.Any
		silent map[string]bool // kinds of check that get no answer
	}{
		"reject": {[][]expr.Any{
			{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.IPPROTO_TCP}},
				&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}},
			{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}},
		}, nil},
		"drop": {[][]expr.Any{{&expr.Verdict{Kind: expr.VerdictDrop}}},
			map[string]bool{"tcp": true, "metadata": true, "dns-direct": true, "ping": true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := testPlan()
			newWalledNetns(t, tt.rules)
			serveGuard(t, p)
			var unanswered []string
			for range 3 { // a busy kernel may leave out an ICMP error, see icmp(7)
				r := runChild(t, p, nobody)
				wantFailed(t, r)
				unanswered = nil
				for _, c := range r.Checks {
					// A UDP datagram that is dropped on its way out is an error of the sender's.
					if c.Detail == noAnswer && !tt.silent[c.Name] {
						unanswered = append(unanswered, c.Name+" "+c.Target)
					}
					if c.Name == "tcp" && c.Detail == "no route" {
						t.Errorf("%s has no route: this test tries nothing", c.Target)
					}
				}
				if unanswered == nil {
					return
				}
			}
			t.Errorf("no answer: %v", unanswered)
		})
	}
}

// newWalledNetns makes a namespace with a default route, and rules for all that
// would take it.
func newWalledNetns(t *testing.T, rules [][]expr.Any) {
	t.Helper()
	netns.Enter(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	up := func(name string) netlink.Link {
		t.Helper()
		l, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(l))
		return l
	}
	up("lo")
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out"}, PeerName: "far"}))
	up("far")
	out := up("out")
	for addr, gw := range map[string]string{"192.0.2.1/24": "192.0.2.2", "2001:db8:1::1/64": "2001:db8:1::2"} {
		a, err := netlink.ParseAddr(addr)
		must(err)
		a.Flags = unix.IFA_F_NODAD
		must(netlink.AddrAdd(out, a))
		must(netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Gw: net.ParseIP(gw)}))
	}
	must(netns.Settle("out", time.Minute))
	must(os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0))

	c, err := nftables.New()
	must(err)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "wall"})
	chain := c.AddChain(&nftables.Chain{Name: "output", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	loopback := []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Register: 1, Data: append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)}, &expr.Verdict{Kind: expr.VerdictAccept}}
	for _, exprs := range append([][]expr.Any{loopback}, rules...) {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	}
	must(c.Flush())
}
