package rig

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// Flows is how many the kernel tracks.
func (w *World) Flows() (n int) {
	w.Helper()
	_, err := fmt.Sscan(w.Root("cat", "/proc/sys/net/netfilter/nf_conntrack_count").Stdout, &n)
	Must(w.T, err)
	return n
}

// Streaming starts a connection of the agent's that sends all the time, and waits
// until it does.
func (w *World) Streaming(to netip.AddrPort) *lab.Process {
	w.Helper()
	before := w.Received(to)
	p := w.AsAgent(w.Box, "tcp", "-hold", "5m", "-oneway", to.String())
	if !Eventually(20*time.Second, func() bool { return w.Received(to) > before }) {
		w.Fatalf("no stream to %s: %s", to, p.Stdout())
	}
	return p
}

// Tampering is everything that somebody with NET_ADMIN could try at the table.
func Tampering() map[string]func(c *nftables.Conn, table *nftables.Table) error {
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

func AgentTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: "agent-init"}
}

// NotToUpstreams selects all but the guard's questions.
func NotToUpstreams(p *lab.Packet) bool {
	return !(p.DstPort == 53 && (p.Dst == lab.Upstream4 || p.Dst == lab.Upstream6))
}

// Settings is a policy.yaml for BoxOptions.Files.
func Settings(text string) lab.File {
	return lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte(text)}
}

// AsAgent starts a poke with the agent's credentials in the confined box, as
// its user in another.
func (w *World) AsAgent(b *lab.Box, args ...string) *lab.Process {
	w.Helper()
	args = append([]string{"poke"}, args...)
	if b == w.Box {
		return w.Launch(args...)
	}
	return b.ExecStart(lab.Cmd{Args: args, UID: lab.AgentUID})
}

// Bound waits until a box has sockets on all of these ports, for
// /proc/net/TABLE: tcp, udp6, ….
func (w *World) Bound(b *lab.Box, table string, ports ...uint16) {
	w.Helper()
	if !Eventually(10*time.Second, func() bool {
		text := b.Exec(lab.Cmd{Args: []string{"cat", "/proc/net/" + table}}).Stdout
		for _, port := range ports {
			if !strings.Contains(text, fmt.Sprintf(":%04X ", port)) {
				return false
			}
		}
		return true
	}) {
		w.Fatalf("nothing is bound to %s %v", table, ports)
	}
}

// RawCaps are those of a container that has NET_RAW too, as by "docker run"
// without --cap-drop. An exec of root can open raw sockets there.
func RawCaps() []string { return append(lab.DefaultCaps(), "NET_RAW") }

// Received is how much came to an address of the internet over TCP.
func (w *World) Received(at netip.AddrPort) (bytes int64) {
	for _, c := range w.Lab.Conns() {
		if c.Dst == at {
			bytes += c.Total
		}
	}
	return bytes
}

// Beside adds a box that nothing confines to the same internet. What works
// there and not in the confined box was refused by agent-init, and not by a
// tool that doesn't work.
func (w *World) Beside(opts lab.BoxOptions) *lab.Box {
	w.Helper()
	b := w.Lab.NewBox(opts)
	b.Idle()
	return b
}

// Refused tries an operation in both boxes: in the open one it must work and
// leave the trace that the filter selects, in the confined one neither.
func (w *World) Refused(open *lab.Box, trace lab.Filter, args ...string) lab.Poke {
	w.Helper()
	open.ForgetPackets()
	if p := open.Poke(lab.AgentUID, args...); !p.OK {
		w.Errorf("proves nothing, does not work without confinement either: %v: %s", args, p)
	}
	w.Traced(open, trace, args)
	p := w.Blocked(args...)
	w.Traceless(trace, args)
	return p
}

func (w *World) Traced(open *lab.Box, trace lab.Filter, args []string) {
	w.Helper()
	if len(open.Packets(trace)) == 0 {
		w.Errorf("proves nothing, leaves no trace without confinement either: %v", args)
	}
}

func (w *World) Traceless(trace lab.Filter, args []string) {
	w.Helper()
	if escaped := w.Box.Packets(trace); len(escaped) > 0 {
		w.Errorf("%v: %d packets left the box, the first of them %s", args, len(escaped), escaped[0])
	}
}

// NotGuards selects what the guard's own queries to its upstream servers don't
// account for.
func NotGuards(p *lab.Packet) bool {
	return p.DstPort != 53 || p.Dst != lab.Upstream4 && p.Dst != lab.Upstream6
}

func Target(addr string, port uint16) string {
	a := netip.MustParseAddr(addr)
	return netip.AddrPortFrom(a, port).String()
}

// Toward is lab.ToAddr for an address that may have a zone.
func Toward(addr string) lab.Filter {
	return lab.ToAddr(netip.MustParseAddr(addr).WithZone("").String())
}
