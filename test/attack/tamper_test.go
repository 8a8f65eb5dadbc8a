package attack

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
)

// tampering is everything that somebody with NET_ADMIN could try at the table.
func tampering() map[string]func(c *nftables.Conn, table *nftables.Table) error {
	chain := func(t *nftables.Table, name string) *nftables.Chain { return &nftables.Chain{Table: t, Name: name} }
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	open := nftables.ChainPolicyAccept
	return map[string]func(c *nftables.Conn, t *nftables.Table) error{
		"delete the table": func(c *nftables.Conn, t *nftables.Table) error { c.DelTable(t); return c.Flush() },
		"flush the table":  func(c *nftables.Conn, t *nftables.Table) error { c.FlushTable(t); return c.Flush() },
		"flush a chain":    func(c *nftables.Conn, t *nftables.Table) error { c.FlushChain(chain(t, "output")); return c.Flush() },
		"let a chain accept": func(c *nftables.Conn, t *nftables.Table) error {
			c.AddChain(&nftables.Chain{Table: t, Name: "output", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter, Policy: &open})
			return c.Flush()
		},
		"insert a rule": func(c *nftables.Conn, t *nftables.Table) error {
			c.InsertRule(&nftables.Rule{Table: t, Chain: chain(t, "output"), Exprs: accept})
			return c.Flush()
		},
		"add a lease": func(c *nftables.Conn, t *nftables.Table) error {
			s, err := c.GetSetByName(t, "lease4")
			if err != nil {
				return err
			}
			key := []byte{1, 1, 1, 1, unix.IPPROTO_TCP, 0, 0, 0, 443 >> 8, 443 & 255, 0, 0}
			if err := c.SetAddElements(s, []nftables.SetElement{{Key: key}}); err != nil {
				return err
			}
			return c.Flush()
		},
		"make the table dormant": func(c *nftables.Conn, t *nftables.Table) error {
			c.AddTable(&nftables.Table{Family: t.Family, Name: t.Name, Flags: 1}) // NFT_TABLE_F_DORMANT
			return c.Flush()
		},
	}
}

func agentTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: "agent-init"}
}

// TestTableCantBeTamperedWith: the agent can't speak to the packet filter at all; root
// of the same container can, but not change the table of PID 1.
func TestTableCantBeTamperedWith(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	before := rules(t, w.box)
	if p := w.blocked("nft"); p.Errno != "EPERM" {
		t.Errorf("the agent: %s", p)
	}
	w.box.Poke(0, "nft") // flushes what it can, which is nothing
	if got := rules(t, w.box); got != before {
		t.Fatalf("root flushed the rules, which are now\n%s", got)
	}
	for what, try := range tampering() {
		var refused error
		must(t, w.box.Net.Do(func() error {
			c, err := nftables.New()
			if err == nil {
				refused = try(c, agentTable())
			}
			return err
		}))
		if !errors.Is(refused, unix.EPERM) {
			t.Errorf("root could %s: %v", what, refused)
		}
		if got := rules(t, w.box); got != before {
			t.Fatalf("root could %s: the rules are now\n%s", what, got)
		}
	}
	w.works("http", "https://ok.test/")
	w.blocked("tcp", "1.1.1.1:443")
	w.sealed(lab.ToAddr("1.1.1.1"))
}

var _ = also(TestForeignTableOpensNothing, everywhere)

// TestForeignTableOpensNothing: a table of somebody else's that accepts, untracks or
// redirects opens nothing.
func TestForeignTableOpensNothing(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	evil4, _ := named("evil.test")
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
		must(t, w.box.Net.Do(func() error {
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
			if p := w.poke(op...); p.OK {
				t.Errorf("a foreign table that %s: got through: %v: %s", what, op, p)
			}
		}
		must(t, w.box.Net.Do(func() error {
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
	w.sealed(notToUpstreams, lab.Not(lab.ToAddr("45.30.9.9")))
	w.unasked("evil.test")
	w.works("http", "https://ok.test/")
}

// notToUpstreams selects all but the guard's questions.
func notToUpstreams(p *lab.Packet) bool {
	return !(p.DstPort == 53 && (p.Dst == lab.Upstream4 || p.Dst == lab.Upstream6))
}

var _ = also(TestRulesOfBothIptablesOpenNothing, everywhere)

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
					must(t, b.Net.Start(cmd))
					must(t, cmd.Wait())
				}
			}
			probe := exec.Command("iptables-"+generation, "-S")
			must(t, l.NewBox(lab.BoxOptions{}).Net.Start(probe))
			if err := probe.Wait(); err != nil {
				t.Logf("the kernel has no such rules, so nobody can make them: %v", err)
				return
			}
			opts := lab.BoxOptions{Binary: lab.Binary(t), Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte("ok.test required\n")}}}
			w := &world{T: t, lab: l, box: l.NewBox(opts)}
			run(w.box, "-P", "OUTPUT", "ACCEPT")
			run(w.box, "-I", "OUTPUT", "-j", "ACCEPT")
			run(w.box, "-I", "INPUT", "-j", "ACCEPT")
			w.agent = w.box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
			w.ready()
			w.works("http", "https://ok.test/")
			w.blocked("tcp", "1.1.1.1:443")
			w.blocked("tcp", "[2606:4700:4700::1111]:443")
			w.sealed(lab.ToAddr("1.1.1.1"))
			w.sealed(lab.ToAddr("2606:4700:4700::1111"))

			// Rules that close are found by trying, too.
			closed := &world{T: t, lab: l, box: l.NewBox(opts)}
			run(closed.box, "-I", "OUTPUT", "-p", "tcp", "--dport", "443", "-j", "REJECT", "--reject-with", "tcp-reset")
			r := closed.box.Run(lab.Cmd{Args: []string{"agent-init", "run", "--", "echo", "started"}})
			refused(t, r, 70, "ok.test")
		})
	}
}
