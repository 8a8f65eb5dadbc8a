package scorecard

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// accepted is a foreign rule as iptables lists it.
const accepted = "\n-A OUTPUT -j ACCEPT\n"

// foreign adds rules of somebody else's to the thread's network namespace, or
// deletes them: everything is accepted, before and after all other tables. Where
// rules that confine are iptables' of a kind, rules of that kind are left alone:
// agent-init's by its backend, and others' as they are found.
func foreign(add bool, backend string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "foreign"})
	accept := nftables.ChainPolicyAccept
	for i, priority := range []int32{-500, 500} {
		chain := c.AddChain(&nftables.Chain{Table: table, Name: fmt.Sprint("output", i), Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRef(nftables.ChainPriority(priority)), Policy: &accept})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
	}
	change := "-I"
	if !add {
		c.DelTable(table)
		change = "-D"
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("change the table: %w", err)
	}
	for _, kind := range []string{"nft", "legacy"} {
		for _, family := range []string{"iptables-", "ip6tables-"} {
			rules, err := exec.Command(family+kind, "-w", "-S", "OUTPUT").Output()
			if err != nil || strings.HasSuffix(backend, kind) {
				continue // the kernel has no such rules, so nobody can make them
			}
			if theirs := strings.Contains(string(rules), "\n-A "); add && theirs || !add && !strings.Contains(string(rules), accepted) {
				continue
			}
			if out, err := exec.Command(family+kind, "-w", change, "OUTPUT", "-j", "ACCEPT").CombinedOutput(); err != nil {
				return fmt.Errorf("%s%s: %w: %s", family, kind, err, out)
			}
		}
	}
	return nil
}
