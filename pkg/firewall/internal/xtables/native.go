package xtables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// In the variant on nf_tables, anyone with NET_ADMIN can put rules into the tables of iptables that iptables doesn't
// know. It can't read or change those tables then, while the kernel obeys what is in them.

// readable is read, which first empties tables of ours that iptables can't tell.
func (x *Backend) readable() (map[plan.Family]xtLive, error) {
	live, err := x.read()
	if err == nil && !torn(live) || x.tools.variant != xtNFT {
		return live, err
	}
	tables := x.tornTables()
	if len(tables) == 0 {
		return x.read()
	}
	emptied, err := emptyTables(tables)
	if err != nil {
		return nil, fmt.Errorf("empty iptables' tables: %w", err)
	}
	if emptied {
		x.log.Warn("somebody put rules that iptables does not know into tables of ours: these were emptied, and stay closed")
	}
	live, err = x.read()
	if err != nil || torn(live) {
		return nil, fmt.Errorf("%w: its tables %v hold rules that iptables does not know: use --backend nftables or xtables-legacy", nfnetlink.ErrUnsupported, tables)
	}
	return live, nil
}

// torn says whether iptables says of any table that it can't tell it.
func torn(live map[plan.Family]xtLive) bool {
	for _, l := range live {
		for _, t := range l {
			if t.torn {
				return true
			}
		}
	}
	return false
}

func nativeTable(f nftables.TableFamily, name string) string {
	return map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip ", nftables.TableFamilyIPv6: "ip6 "}[f] + name
}

func (x *Backend) tornTables() (out []string) {
	for f, nf := range map[plan.Family]nftables.TableFamily{plan.IPv4: nftables.TableFamilyIPv4, plan.IPv6: nftables.TableFamilyIPv6} {
		for _, name := range []string{"filter", "raw", "mangle", "nat"} {
			text, err := x.tools.call(x.tools.save[f], nil, "-t", name)
			live, perr := parseSave(string(text))
			if err != nil || perr != nil || live.table(name).torn {
				out = append(out, nativeTable(nf, name))
			}
		}
	}
	return out
}

// emptyTables removes every rule from those of tables that have chains of ours, and base chains that iptables doesn't
// have; in one transaction that also makes filter drop by default.
func emptyTables(tables []string) (emptied bool, err error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return false, err
	}
	defer conn.CloseLasting()
	chains, err := conn.ListChains()
	if err != nil {
		return false, err
	}
	ours := map[string]bool{}
	for _, c := range chains {
		t := nativeTable(c.Table.Family, c.Table.Name)
		ours[t] = ours[t] || strings.HasPrefix(c.Name, xtPrefix) && slices.Contains(tables, t)
	}
	for _, c := range chains {
		if !ours[nativeTable(c.Table.Family, c.Table.Name)] {
			continue
		}
		emptied = true
		conn.FlushChain(c)
		switch {
		case c.Hooknum == nil:
		case !slices.Contains([]string{"INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING"}, c.Name):
			conn.DelChain(c)
		case c.Table.Name == "filter":
			policy := nftables.ChainPolicyDrop
			conn.AddChain(&nftables.Chain{Name: c.Name, Table: c.Table, Hooknum: c.Hooknum, Priority: c.Priority, Type: c.Type, Policy: &policy})
		}
	}
	return emptied, conn.Flush()
}
