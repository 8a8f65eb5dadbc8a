package filter

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestTableCantBeTamperedWith: the agent can't speak to the packet filter at all; root
// of the same container can, but not change the table of PID 1.
func TestTableCantBeTamperedWith(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	before := rig.Rules(t, w.Box)
	if p := w.Blocked("nft"); p.Errno != "EPERM" {
		t.Errorf("the agent: %s", p)
	}
	w.Box.Poke(0, "nft") // flushes what it can, which is nothing
	if got := rig.Rules(t, w.Box); got != before {
		t.Fatalf("root flushed the rules, which are now\n%s", got)
	}
	for what, try := range rig.Tampering() {
		var refused error
		rig.Must(t, w.Box.Net.Do(func() error {
			c, err := nftables.New()
			if err == nil {
				refused = try(c, rig.AgentTable())
			}
			return err
		}))
		if !errors.Is(refused, unix.EPERM) {
			t.Errorf("root could %s: %v", what, refused)
		}
		if got := rig.Rules(t, w.Box); got != before {
			t.Fatalf("root could %s: the rules are now\n%s", what, got)
		}
	}
	w.Works("http", "https://ok.test/")
	w.Blocked("tcp", "1.1.1.1:443")
	w.Sealed(lab.ToAddr("1.1.1.1"))
}

var _ = rig.Also(TestForeignTableOpensNothing, rig.Everywhere)

// TestForeignTableOpensNothing: a table of somebody else's that accepts, untracks or
// redirects opens nothing.
func TestForeignTableOpensNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	evil4, _ := rig.Named("evil.test")
	families := []nftables.TableFamily{nftables.TableFamilyINet, nftables.TableFamilyIPv4, nftables.TableFamilyIPv6}
	inChain := func(priority int, typ nftables.ChainType, hook *nftables.ChainHook, exprs ...expr.Any) func(*nftables.Conn) {
		return func(c *nftables.Conn) {
			for _, f := range families {
				table := c.AddTable(&nftables.Table{Family: f, Name: "foreign"})
				ch := c.AddChain(&nftables.Chain{Table: table, Name: "c", Type: typ, Hooknum: hook, Priority: nftables.ChainPriorityRef(nftables.ChainPriority(priority))})
				c.AddRule(&nftables.Rule{Table: table, Chain: ch, Exprs: exprs})
			}
		}
	}
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	dnat := []expr.Any{
		&expr.Immediate{Register: 1, Data: evil4.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
	}
	tables := map[string]func(*nftables.Conn){
		"accepts before":             inChain(-500, nftables.ChainTypeFilter, nftables.ChainHookOutput, accept),
		"accepts at the same time":   inChain(0, nftables.ChainTypeFilter, nftables.ChainHookOutput, accept),
		"accepts after":              inChain(500, nftables.ChainTypeFilter, nftables.ChainHookOutput, accept),
		"accepts the rerouted":       inChain(-150, nftables.ChainTypeRoute, nftables.ChainHookOutput, accept),
		"accepts before translation": inChain(-150, nftables.ChainTypeNAT, nftables.ChainHookOutput, accept),
		"accepts what comes in":      inChain(-500, nftables.ChainTypeFilter, nftables.ChainHookInput, accept),
		"does not track":             inChain(-300, nftables.ChainTypeFilter, nftables.ChainHookOutput, &expr.Notrack{}),
		"sends all to one host": func(c *nftables.Conn) {
			table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "foreign"})
			ch := c.AddChain(&nftables.Chain{Table: table, Name: "c", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRef(-150)})
			c.AddRule(&nftables.Rule{Table: table, Chain: ch, Exprs: dnat})
		},
	}
	for what, add := range tables {
		rig.Must(t, w.Box.Net.Do(func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			add(c)
			return c.Flush()
		}))
		for _, op := range [][]string{
			{"tcp", evil4.String() + ":443"}, {"tcp", "1.1.1.1:443"}, {"udp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"ping", "1.1.1.1"},
			{"dns", "8.8.8.8:53", "evil.test", "A"}, {"dns", "-tcp", "8.8.8.8:53", "evil.test", "A"},
			{"tcp", "-timeout", "500ms", "45.30.9.9:8443"}, // opened by the policy, but not to where it is sent
		} {
			if what != "sends all to one host" && op[len(op)-1] == "45.30.9.9:8443" {
				continue
			}
			if p := w.Poke(op...); p.OK {
				t.Errorf("a foreign table that %s: got through: %v: %s", what, op, p)
			}
		}
		rig.Must(t, w.Box.Net.Do(func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			tables, err := c.ListTables()
			if err != nil {
				return err
			}
			for _, table := range tables {
				if table.Name == "foreign" {
					c.DelTable(table)
				}
			}
			return c.Flush()
		}))
	}
	w.Sealed(rig.NotToUpstreams, lab.Not(lab.ToAddr("45.30.9.9")))
	w.Unasked("evil.test")
	w.Works("http", "https://ok.test/")
}

var _ = rig.Also(TestRulesOfBothIptablesOpenNothing, rig.Everywhere)

// TestRulesOfBothIptablesOpenNothing: rules of both generations of iptables, made before the
// start, neither open nor hide anything, and the self-test judges by packets.
func TestRulesOfBothIptablesOpenNothing(t *testing.T) {
	lab.Require(t)
	for _, generation := range []string{"legacy", "nft"} {
		t.Run(generation, func(t *testing.T) {
			if _, err := exec.LookPath("iptables-" + generation); err != nil {
				mustrun.Lacks(t, "%v", err)
			}
			l := lab.New(t, lab.Options{})
			run := func(b *lab.Box, args ...string) {
				t.Helper()
				for _, program := range []string{"iptables-", "ip6tables-"} {
					cmd := exec.Command(program+generation, args...)
					rig.Must(t, b.Net.Start(cmd))
					rig.Must(t, cmd.Wait())
				}
			}
			probe := exec.Command("iptables-"+generation, "-S")
			rig.Must(t, l.NewBox(lab.BoxOptions{}).Net.Start(probe))
			if err := probe.Wait(); err != nil {
				t.Logf("the kernel has no such rules, so nobody can make them: %v", err)
				return
			}
			opts := lab.BoxOptions{Binary: lab.Binary(t), Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte("ok.test required\n")}}}
			w := &rig.World{T: t, Lab: l, Box: l.NewBox(opts)}
			run(w.Box, "-P", "OUTPUT", "ACCEPT")
			run(w.Box, "-I", "OUTPUT", "-j", "ACCEPT")
			run(w.Box, "-I", "INPUT", "-j", "ACCEPT")
			w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
			w.Ready()
			w.Works("http", "https://ok.test/")
			w.Blocked("tcp", "1.1.1.1:443")
			w.Blocked("tcp", "[2606:4700:4700::1111]:443")
			w.Sealed(lab.ToAddr("1.1.1.1"))
			w.Sealed(lab.ToAddr("2606:4700:4700::1111"))

			// Rules that close are found by trying, too.
			closed := &rig.World{T: t, Lab: l, Box: l.NewBox(opts)}
			run(closed.Box, "-I", "OUTPUT", "-p", "tcp", "--dport", "443", "-j", "REJECT", "--reject-with", "tcp-reset")
			r := closed.Box.Run(lab.Cmd{Args: []string{"agent-init", "run", "--", "echo", "started"}})
			rig.Refused(t, r, 70, "ok.test")
		})
	}
}
