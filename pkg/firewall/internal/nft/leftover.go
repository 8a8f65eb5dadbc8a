package nft

import (
	"fmt"

	"github.com/google/nftables"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Remove removes the table of the nftables backend, if there is one.
func Remove() error {
	live, err := readTable()
	if nfnetlink.Absent(err) || err == nil && live == nil {
		return nil
	}
	if err != nil {
		return nfnetlink.Explain("look for rules of the nftables backend", err)
	}
	if nftables.TableFlags(live.flags)&nftables.TableFlagOwner != 0 {
		return fmt.Errorf("remove rules of the nftables backend: another process (netlink port %d) holds them", live.owner)
	}
	conn, err := nftables.New()
	if err != nil {
		return nfnetlink.Explain("remove rules of the nftables backend", err)
	}
	conn.DelTable(&nftables.Table{Name: plan.TableName, Family: nftables.TableFamilyINet})
	return nfnetlink.Explain("remove rules of the nftables backend", conn.Flush())
}
