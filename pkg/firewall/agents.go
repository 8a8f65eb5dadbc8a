package firewall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nft"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// cellPrefix begins the name of a cell's table. No agent's name has a slash or a dot, and so none is what we try with.
const cellPrefix = plan.TableName + "/"

// NewAgentsPlan computes the table of all agents of a gateway, which lets nothing pass but what the table of the right
// agent has let pass. The error says what in a makes no sense.
func NewAgentsPlan(a Agents) (Plan, error) { return plan.NewAgents(a) }

// RemoveCells removes the tables of these cells, or of all if none is named. What they judged is sealed from then on.
func RemoveCells(names ...string) error { return nft.RemoveTables(ofCells(names)) }

// RemoveCells does so at the start, where all that an earlier gateway has left goes.
func (f *Firewall) RemoveCells(ctx context.Context) error {
	n, ok := f.be.(*nft.Backend)
	if !ok { // a gateway has no other
		return nil
	}
	return f.rules.do(ctx, func() error { return n.RemoveTables(ofCells(nil)) })
}

func ofCells(names []string) func(table string) bool {
	return func(table string) bool {
		name, its := strings.CutPrefix(table, cellPrefix)
		return its && (len(names) == 0 || slices.Contains(names, strings.TrimSuffix(name, ".probe")))
	}
}

// Seen are addresses that somebody behind the agents' interfaces sent from in the last minutes.
type Seen struct {
	Strangers []netip.Addr // of no agent
	Forged    []netip.Addr // of an agent, who has another hardware address or is elsewhere
}

// Seen lists them. They are bounded: of many, it has some.
func (f *Firewall) Seen(ctx context.Context) (out Seen, err error) {
	n, ok := f.be.(*nft.Backend)
	if !ok {
		return out, errors.New("only nftables tells who was seen")
	}
	err = f.rules.do(ctx, func() error {
		for _, family := range plan.Families() {
			for set, to := range map[string]*[]netip.Addr{family.Strangers().Name: &out.Strangers, family.Forged().Name: &out.Forged} {
				list, err := n.Addresses(set)
				if err != nil && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("list who was seen: %w", err)
				}
				*to = append(*to, list...)
			}
		}
		return nil
	})
	return out, err
}

// Pin has the kernel send to agents that have a hardware address by that alone, whatever their neighbours say.
func Pin(list []AgentAt) error { return pin(list, netlink.NeighSet) }

// Unpin takes that back.
func Unpin(list []AgentAt) error {
	return pin(list, func(n *netlink.Neigh) error {
		if err := netlink.NeighDel(n); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	})
}

func pin(list []AgentAt, do func(*netlink.Neigh) error) error {
	for _, a := range list {
		if a.MAC == [6]byte{} {
			continue
		}
		for _, p := range a.Networks {
			n := &netlink.Neigh{LinkIndex: int(a.Link), IP: p.Addr().AsSlice(), HardwareAddr: a.MAC[:], State: netlink.NUD_PERMANENT, Family: netlink.FAMILY_V4}
			if p.Addr().Is6() {
				n.Family = netlink.FAMILY_V6
			}
			if err := do(n); err != nil {
				return fmt.Errorf("pin the hardware address of %v: %w", p.Addr(), err)
			}
		}
	}
	return nil
}
